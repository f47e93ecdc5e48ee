#include "text/chat_template.h"

#include <nlohmann/json.hpp>

#include "text/quote.h"
#include "text/rust_result.h"
#include "text/special_guard.h"

namespace spyre::text {

namespace {

using Json = nlohmann::ordered_json;

// What ends the last message that is to be continued: nothing that a text holds, and a space, to see whether the
// template trims the ends of messages.
constexpr std::string_view kOpenEnd = "\xEF\xB7\x91 ";  // U+FDD1
constexpr std::string_view kNeedle = "spyre-needle";

std::string dump(const Json& value) {
  try {
    return value.dump();
  } catch (const Json::exception&) {
    throw_error(ErrorCode::kInvalidArgument, "the conversation holds text that is not UTF-8");
  }
}

std::string render_text(const SpyreTextTemplate* chat_template, const Json& variables) {
  const std::string json = dump(variables);
  RustBytes out;
  call([&](SpyreTextBytes* e) {
    return spyre_text_template_render(chat_template, bytes_of(json), json.size(), SpecialGuard::kMark, &out, e);
  });
  return out.str();
}

Json variables_of(const Json& messages, const Json& tools, const Json& kwargs, bool add_generation_prompt) {
  // The names that transformers always defines; chat_template_kwargs may change all but the conversation itself.
  Json variables = {{"documents", nullptr}, {"add_generation_prompt", add_generation_prompt}};
  if (!kwargs.is_null()) {
    if (!kwargs.is_object()) throw_error(ErrorCode::kInvalidArgument, "chat_template_kwargs is not an object");
    for (const auto& [key, value] : kwargs.items()) variables[key] = value;
  }
  variables["messages"] = messages;
  variables["tools"] = tools;
  return variables;
}

void check_messages(const Json& messages) {
  if (!messages.is_array()) throw_error(ErrorCode::kInvalidArgument, "messages is not a list");
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].is_object()) throw_error(ErrorCode::kInvalidArgument, "messages[{}] is not an object", i);
  }
}

// The API has the arguments of a call as JSON in a string; templates want the values.
void parse_arguments(Json& message, size_t index) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return;
  for (size_t j = 0; j < calls->size(); ++j) {
    Json& one = (*calls)[j];
    if (!one.is_object() || !one.contains("function") || !one["function"].is_object()) continue;
    Json& function = one["function"];
    const auto arguments = function.find("arguments");
    if (arguments == function.end() || !arguments->is_string()) continue;
    const auto text = arguments->get<std::string>();
    if (text.empty()) {
      *arguments = Json::object();
      continue;
    }
    Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (parsed.is_discarded()) {
      throw_error(ErrorCode::kInvalidArgument, "messages[{}].tool_calls[{}].function.arguments is not JSON: {}", index,
                  j, in_quotes(text));
    }
    *arguments = std::move(parsed);
  }
}

// Templates of different families read the reasoning of an earlier turn under different names.
void alias_reasoning(Json& message) {
  constexpr const char* kNames[] = {"reasoning_content", "reasoning", "thinking"};
  const Json* found = nullptr;
  for (const char* name : kNames) {
    const auto it = message.find(name);
    if (it != message.end() && it->is_string() && !found) found = &*it;
  }
  if (!found) return;
  const Json text = *found;
  for (const char* name : kNames) {
    if (!message.contains(name)) message[name] = text;
  }
}

std::string joined_parts(const Json& parts, size_t index) {
  std::string out;
  for (size_t j = 0; j < parts.size(); ++j) {
    const Json& part = parts[j];
    const std::string type = part.is_object() ? part.value("type", Json("text")).dump() : "";
    if (!part.is_object() || type != "\"text\"" || !part.contains("text") || !part["text"].is_string()) {
      throw_error(ErrorCode::kInvalidArgument, "messages[{}].content[{}] is no text part", index, j);
    }
    if (j > 0) out += '\n';
    out += part["text"].get_ref<const std::string&>();
  }
  return out;
}

void fit_content(Json& message, size_t index, bool takes_strings, bool takes_parts) {
  const auto content = message.find("content");
  if (content == message.end()) return;
  if (content->is_array() && !takes_parts) *content = joined_parts(*content, index);
  if (content->is_string() && !takes_strings && takes_parts) {
    *content = Json::array({{{"type", "text"}, {"text", content->get<std::string>()}}});
  }
}

// Appends kOpenEnd to the text of the last message.
void open_last_message(Json& messages) {
  Json* text = nullptr;
  if (!messages.empty() && messages.back().contains("content")) {
    Json& content = messages.back()["content"];
    if (content.is_string()) text = &content;
    if (content.is_array()) {
      for (Json& part : content) {
        if (part.is_object() && part.contains("text") && part["text"].is_string()) text = &part["text"];
      }
    }
  }
  if (!text) throw_error(ErrorCode::kInvalidArgument, "continue_final_message: the last message has no text");
  text->get_ref<std::string&>() += kOpenEnd;
}

void cut_at_open_end(std::string& rendered) {
  const size_t at = rendered.rfind(kOpenEnd.substr(0, kOpenEnd.size() - 1));
  if (at == std::string::npos) {
    throw_error(ErrorCode::kInvalidArgument,
                "continue_final_message: the chat template does not print the last message as it is");
  }
  const bool trimmed = rendered.compare(at, kOpenEnd.size(), kOpenEnd) != 0;
  rendered.resize(at);
  if (trimmed) rendered.resize(rendered.find_last_not_of(" \t\n\r\f\v") + 1);
}

}  // namespace

std::string ChatPrompt::text() const {
  std::string out;
  for (const Piece& piece : pieces) out += piece.text;
  return out;
}

void ChatTemplate::Free::operator()(SpyreTextTemplate* chat_template) const {
  spyre_text_template_free(chat_template);
}

ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate::Handle ChatTemplate::compile(std::string_view source, std::string_view bos, std::string_view eos) {
  SpyreTextTemplate* handle = nullptr;
  call([&](SpyreTextBytes* e) {
    return spyre_text_template_new(bytes_of(source), source.size(), bytes_of(bos), bos.size(), bytes_of(eos),
                                   eos.size(), &handle, e);
  });
  return Handle(handle);
}

ChatTemplate::ChatTemplate(std::string_view source, std::string_view bos, std::string_view eos,
                           std::string_view tool_use)
    : handle_(compile(source, bos, eos)) {
  if (!tool_use.empty()) tool_use_ = compile(tool_use, bos, eos);
  probe_content();
}

// Renders one turn in both forms and looks for its text. A template that takes neither (it may want more than one turn)
// is given strings, as most do.
void ChatTemplate::probe_content() {
  const auto prints = [&](const Json& content) {
    try {
      const Json messages = Json::array({{{"role", "user"}, {"content", content}}});
      const std::string text = render_text(handle_.get(), variables_of(messages, nullptr, nullptr, true));
      // A template that prints whatever it is given prints the list itself.
      return text.find(kNeedle) != std::string::npos && text.find("'type': 'text'") == std::string::npos &&
             text.find(R"("type": "text")") == std::string::npos;
    } catch (const Error&) {
      return false;
    }
  };
  takes_parts_ = prints(Json::array({{{"type", "text"}, {"text", kNeedle}}}));
  takes_strings_ = !takes_parts_ || prints(kNeedle);
}

ChatPrompt ChatTemplate::render(const Json& messages, const Json& tools, const Json& kwargs,
                                const std::vector<std::string>& specials, const ChatOptions& options) const {
  if (options.continue_final_message && options.add_generation_prompt) {
    throw_error(ErrorCode::kInvalidArgument,
                "continue_final_message and add_generation_prompt cannot both be set: one continues the last message, "
                "the other begins a new one");
  }
  check_messages(messages);
  if (!tools.is_null() && !tools.is_array()) throw_error(ErrorCode::kInvalidArgument, "tools is not a list");
  Json conversation = messages;
  for (size_t i = 0; i < conversation.size(); ++i) {
    parse_arguments(conversation[i], i);
    alias_reasoning(conversation[i]);
    fit_content(conversation[i], i, takes_strings_, takes_parts_);
  }
  const SpecialGuard guard(options.guard_special ? specials : std::vector<std::string>{});
  Json variables = variables_of(conversation, tools, kwargs, options.add_generation_prompt);
  guard.mark(variables);
  if (options.continue_final_message) open_last_message(variables["messages"]);
  const bool with_tools = tool_use_ && tools.is_array() && !tools.empty();
  std::string text = render_text(with_tools ? tool_use_.get() : handle_.get(), variables);
  if (options.continue_final_message) cut_at_open_end(text);
  return guard.cut(text);
}

ChatPrompt ChatTemplate::render(const nlohmann::json& messages, const nlohmann::json& tools,
                                const nlohmann::json& kwargs, const std::vector<std::string>& specials,
                                const ChatOptions& options) const {
  return render(Json(messages), Json(tools), Json(kwargs), specials, options);
}

std::vector<std::string> special_texts(const Tokenizer& tokenizer) {
  std::vector<std::string> out;
  for (const TokenId id : tokenizer.special_ids()) out.push_back(tokenizer.token_bytes(id));
  return out;
}

std::vector<TokenId> encode(const Tokenizer& tokenizer, const ChatPrompt& prompt) {
  std::vector<TokenId> out;
  for (const ChatPrompt::Piece& piece : prompt.pieces) {
    const auto ids = tokenizer.encode(piece.text, {.add_special = false, .parse_special = piece.parse_special});
    out.insert(out.end(), ids.begin(), ids.end());
  }
  return out;
}

}  // namespace spyre::text
