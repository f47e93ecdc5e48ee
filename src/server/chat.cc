#include "server/chat.h"

#include <limits>

#include "server/api_error.h"

namespace spyre::server {
namespace {

class ChatFormat final : public AnswerFormat {
 public:
  ChatFormat(const ServedModel& model, const AnswerOptions& options, bool logprobs, int32_t top, bool prompt_logprobs,
             std::vector<int32_t> prompt_ids, std::string role)
      : text_(model.tokenizer, options.tokens_as_ids),
        options_(options),
        logprobs_(logprobs),
        top_(top),
        prompt_logprobs_(prompt_logprobs),
        prompt_ids_(std::move(prompt_ids)),
        role_(std::move(role)) {}

  std::string_view id_prefix() const override { return "chatcmpl-"; }
  std::string_view object() const override { return "chat.completion"; }
  std::string_view chunk_object() const override { return "chat.completion.chunk"; }

  Json whole(Choice& choice) override {
    Json out;
    out["index"] = choice.index;
    out["message"] = Json::object({{"role", role_}, {"content", choice.text}, {"refusal", nullptr}});
    out["logprobs"] = logprobs_ ? content(choice.logprobs) : Json(nullptr);
    add_end(out, choice);
    if (options_.return_token_ids) out["token_ids"] = choice.token_ids;
    return out;
  }

  void finish_whole(Json& answer, std::vector<Choice>& choices) override {
    answer["prompt_logprobs"] =
        prompt_logprobs_ ? prompt_logprobs_json(text_, choices.front().prompt_logprobs) : Json(nullptr);
    if (options_.return_token_ids) answer["prompt_token_ids"] = prompt_ids_;
  }

  // The first event of a choice says who speaks, and nothing else.
  std::vector<Json> chunks(Choice& choice, const engine::OutputDelta& delta) override {
    std::vector<Json> entries;
    if (!choice.begun) {
      Json first = entry(choice, Json::object({{"role", role_}, {"content", ""}}));
      first["logprobs"] = nullptr;
      first["finish_reason"] = nullptr;
      if (options_.return_token_ids) first["prompt_token_ids"] = prompt_ids_;
      entries.push_back(std::move(first));
      choice.begun = true;
    }
    const bool shows = !delta.text.empty() || delta.finish_reason ||
                       (!delta.token_ids.empty() && (logprobs_ || options_.return_token_ids));
    if (!shows) return entries;
    Json out =
        entry(choice, delta.text.empty() && !logprobs_ ? Json::object() : Json::object({{"content", delta.text}}));
    out["logprobs"] = logprobs_ ? content(delta.logprobs) : Json(nullptr);
    add_end(out, choice);
    if (options_.return_token_ids) out["token_ids"] = delta.token_ids;
    entries.push_back(std::move(out));
    return entries;
  }

 private:
  static Json entry(const Choice& choice, Json delta) {
    Json out;
    out["index"] = choice.index;
    out["delta"] = std::move(delta);
    return out;
  }
  static void add_end(Json& out, const Choice& choice) {
    out["finish_reason"] = choice.finish_reason ? Json(engine::to_string(*choice.finish_reason)) : Json(nullptr);
    if (choice.finish_reason) out["stop_reason"] = choice.stop_reason();
  }
  Json content(const std::vector<runner::TokenLogprob>& logprobs) const {
    Json list = Json::array();
    for (const runner::TokenLogprob& token : logprobs) list.push_back(chat_logprob(text_, token, top_));
    Json out;
    out["content"] = std::move(list);
    return out;
  }

  const TokenText text_;
  const AnswerOptions options_;
  const bool logprobs_;
  const int32_t top_;
  const bool prompt_logprobs_;
  const std::vector<int32_t> prompt_ids_;
  const std::string role_;
};

template <typename... Args>
[[noreturn]] void bad_message(size_t i, fmt::format_string<Args...> format, Args&&... args) {
  bad_field("messages", "message {}: {}", i, fmt::format(format, std::forward<Args>(args)...));
}

void check_content(size_t i, const Json& content) {
  if (content.is_string() || content.is_null()) return;
  if (!content.is_array()) bad_message(i, "content must be a string or a list of parts, not {}", shown(content));
  for (const Json& part : content) {
    if (part.is_string()) continue;
    if (!part.is_object()) bad_message(i, "a part of content must be an object, not {}", shown(part));
    const auto type = part.find("type");
    if (type == part.end() || !type->is_string()) bad_message(i, "a part of content needs a type");
    if (*type != "text" && *type != "refusal")
      bad_message(i, "parts of type {} are not built in this server; only text is", shown(*type));
    const auto text = part.find(type->get<std::string>());
    if (text == part.end() || !text->is_string())
      bad_message(i, "a part of type {} needs {} as a string", shown(*type), shown(*type));
  }
}

// Templates want the arguments of a tool call as an object; clients send them as text.
void check_tool_calls(size_t i, Json& calls) {
  if (!calls.is_array()) bad_message(i, "tool_calls must be a list, not {}", shown(calls));
  for (Json& call : calls) {
    const auto function = call.is_object() ? call.find("function") : call.end();
    if (!call.is_object() || function == call.end() || !function->is_object())
      bad_message(i, "an entry of tool_calls needs a function");
    const auto name = function->find("name");
    if (name == function->end() || !name->is_string()) bad_message(i, "a function of tool_calls needs a name");
    const auto arguments = function->find("arguments");
    if (arguments == function->end() || arguments->is_null()) {
      (*function)["arguments"] = Json::object();
    } else if (arguments->is_string()) {
      const auto text = arguments->get<std::string>();
      try {
        *arguments = text.empty() ? Json::object() : parse_json(text);
      } catch (const ApiError& error) {
        bad_message(i, "the arguments of '{}' are no JSON: {}", quotable(name->get<std::string>(), 40), error.what());
      }
    }
  }
}

// A checked copy.
Json read_messages(const Json& given) {
  Json messages = given;
  if (messages.empty()) bad_field("messages", "is an empty list");
  for (size_t i = 0; i < messages.size(); ++i) {
    Json& message = messages[i];
    const auto role = message.find("role");
    if (role == message.end() || !role->is_string()) bad_message(i, "needs a role, as a string");
    if (role->get_ref<const std::string&>().empty()) bad_message(i, "the role is empty");
    const bool assistant = *role == "assistant";
    if (const auto calls = message.find("tool_calls"); calls != message.end()) {
      if (calls->is_null()) {
        message.erase("tool_calls");
      } else {
        check_tool_calls(i, *calls);
      }
    }
    const auto content = message.find("content");
    if (content != message.end()) check_content(i, *content);
    const bool missing = content == message.end() || content->is_null();
    if (missing && !assistant) bad_message(i, "needs content");
    if (missing) message["content"] = "";  // as vLLM: templates that join strings meet turns of tool calls alone
  }
  return messages;
}

void check_tools(const Json* tools) {
  if (!tools) return;
  for (size_t i = 0; i < tools->size(); ++i) {
    const Json& tool = (*tools)[i];
    const auto type = tool.find("type");
    if (type != tool.end() && *type != "function")
      bad_field("tools", "tool {}: only type function is known, not {}", i, shown(*type));
    const auto function = tool.find("function");
    const bool named = function != tool.end() && function->is_object() && function->contains("name") &&
                       (*function)["name"].is_string();
    if (!named) bad_field("tools", "tool {}: needs a function with a name", i);
  }
}

// As vLLM without a parser of tool calls: none is the default without tools and auto the default with them, and with
// tools only none can be served. Clients that always send auto may: without tools there is nothing to call.
void check_tool_choice(const Body& body) {
  const Json* given = body.find("tool_choice");
  const Json* tools = body.find("tools");
  const bool has_tools = tools && !tools->empty();
  const Json choice = given ? *given : Json(has_tools ? "auto" : "none");
  if (choice == "none" || (choice == "auto" && !has_tools)) return;
  bad_field("tool_choice", "is {}{}, and tool calls are not parsed in this server: with tools it must be none",
            shown(choice), given ? "" : " (the default with tools)");
}

}  // namespace

ChatPromptIds read_conversation(const Body& body, const ServedModel& model) {
  const Json* messages = body.find("messages");
  if (!messages) bad_field("messages", "is required");
  const Json* tools = body.find("tools");
  const Json* kwargs = body.find("chat_template_kwargs");
  check_tools(tools);
  ChatArguments arguments;
  arguments.messages = read_messages(*messages);
  arguments.tools = tools && !tools->empty() ? *tools : Json(nullptr);
  arguments.kwargs = kwargs ? *kwargs : Json(nullptr);
  arguments.add_generation_prompt = body.flag("add_generation_prompt", true);
  arguments.continue_final_message = body.flag("continue_final_message", false);
  arguments.add_special_tokens = body.flag("add_special_tokens", false);
  if (arguments.continue_final_message && arguments.add_generation_prompt) {
    bad_field("continue_final_message", "needs add_generation_prompt false");
  }
  if (!model.chat)
    throw ApiError(400, "this model has no chat template; /v1/completions takes a written-out prompt", "messages");
  try {
    return model.chat(arguments);
  } catch (const Error& error) {
    const ApiError seen = to_api_error(error);
    throw ApiError(seen.status() == 429 ? 400 : seen.status(), seen.what(), "messages");
  }
}

GenerationPlan plan_chat(const Json& json, const ServedModel& model) {
  check_fields(json, chat_fields(), model.limits);
  const Body body(json);
  check_model_name(body, model);
  GenerationPlan plan;
  plan.options = read_answer_options(body);
  check_tool_choice(body);
  engine::Request request = read_sampling(body, model);
  const bool logprobs = body.flag("logprobs", false);
  const auto top = body.integer("top_logprobs");
  if (top && *top != 0 && !logprobs) bad_field("top_logprobs", "needs logprobs true");
  check_whole_vocabulary("top_logprobs", top, model.limits);
  if (logprobs) request.sampling.logprobs = static_cast<int32_t>(top.value_or(0));
  const bool prompt_logprobs = request.sampling.prompt_logprobs.has_value();

  ChatPromptIds prompt = read_conversation(body, model);
  const bool older = !body.integer("max_completion_tokens");
  fit_context(request, std::move(prompt.ids), body, model.limits, older ? "max_tokens" : "max_completion_tokens",
              older ? body.integer("max_tokens") : body.integer("max_completion_tokens"),
              model.defaults.max_new_tokens.value_or(std::numeric_limits<int64_t>::max()));
  const Json& last = body.find("messages")->back();
  const bool continues = body.flag("continue_final_message", false);
  std::string role = continues ? last.at("role").get<std::string>() : "assistant";
  plan.format = std::make_unique<ChatFormat>(model, plan.options, logprobs, static_cast<int32_t>(top.value_or(0)),
                                             prompt_logprobs, request.prompt_ids, std::move(role));
  plan.requests.push_back(std::move(request));
  return plan;
}

}  // namespace spyre::server
