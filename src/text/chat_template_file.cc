// Where the chat template of a model is found.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "formats/gguf.h"
#include "text/chat_template.h"

namespace spyre::text {

namespace {

using nlohmann::json;

constexpr size_t kConfigLimit = size_t{64} << 20;   // bytes of tokenizer_config.json
constexpr size_t kTemplateLimit = size_t{1} << 20;  // bytes; rust/text has the same limit
constexpr const char* kConfig = "tokenizer_config.json";

struct Sources {
  std::optional<std::string> main;
  std::string tool_use, bos, eos;

  std::optional<ChatTemplate> compile() const {
    if (!main) return std::nullopt;
    return ChatTemplate(*main, bos, eos, tool_use);
  }
};

// Keeps three keys of the file, and of these nothing that is nested deeper than they ever are.
bool keep(int depth, json::parse_event_t event, json& value) {
  using Event = json::parse_event_t;
  if (event == Event::object_start || event == Event::array_start) return depth <= 4;
  if (event != Event::key || depth != 1) return true;
  return value == "chat_template" || value == "bos_token" || value == "eos_token";
}

std::string token_text(const json& config, const char* key) {
  const auto it = config.find(key);
  if (it == config.end()) return "";
  if (it->is_string()) return it->get<std::string>();
  if (it->is_object() && it->contains("content") && (*it)["content"].is_string())
    return (*it)["content"].get<std::string>();
  return "";
}

// A list of {"name": ..., "template": ...}.
void take_named(const json& list, Sources& out) {
  for (size_t i = 0; i < list.size(); ++i) {
    const json& entry = list[i];
    const auto text = [&](const char* key) {
      if (entry.is_object() && entry.contains(key) && entry[key].is_string()) return entry[key].get<std::string>();
      throw_error(ErrorCode::kCorruptData, "{}: chat_template[{}] has no text '{}'", kConfig, i, key);
    };
    const std::string name = text("name");
    if (name == "default") out.main = text("template");
    if (name == "tool_use") out.tool_use = text("template");
  }
  if (!out.main) {
    throw_error(ErrorCode::kUnsupported, "{}: chat_template lists {} templates, but none named 'default'", kConfig,
                list.size());
  }
}

void read_config(const std::filesystem::path& path, Sources& out) {
  const json config = json::parse(read_file(path, kConfigLimit), keep, /*allow_exceptions=*/false);
  if (!config.is_object()) throw_error(ErrorCode::kCorruptData, "{} is not a JSON object", kConfig);
  out.bos = token_text(config, "bos_token");
  out.eos = token_text(config, "eos_token");
  const auto it = config.find("chat_template");
  if (it == config.end() || it->is_null()) return;
  if (it->is_string()) {
    out.main = it->get<std::string>();
  } else if (it->is_array()) {
    take_named(*it, out);
  } else {
    throw_error(ErrorCode::kCorruptData, "{}: chat_template is neither a text nor a list", kConfig);
  }
}

}  // namespace

std::optional<ChatTemplate> load_chat_template(const std::filesystem::path& folder) {
  Sources sources;
  std::error_code ec;
  try {
    if (const auto path = folder / kConfig; std::filesystem::exists(path, ec)) read_config(path, sources);
    // The files win, as in transformers.
    if (const auto path = folder / "chat_template.jinja"; std::filesystem::exists(path, ec))
      sources.main = read_file(path, kTemplateLimit);
    if (const auto path = folder / "additional_chat_templates" / "tool_use.jinja"; std::filesystem::exists(path, ec))
      sources.tool_use = read_file(path, kTemplateLimit);
    return sources.compile();
  } catch (const Error& e) {
    throw_error(e.code(), "'{}': {}", folder.string(), e.what());
  }
}

std::optional<ChatTemplate> load_chat_template(const formats::GgufFile& file) {
  Sources sources;
  const formats::GgufTokenizerKeys keys = file.tokenizer();
  if (keys.chat_template.empty()) return std::nullopt;
  sources.main = std::string(keys.chat_template);
  sources.tool_use = std::string(file.get_string("tokenizer.chat_template.tool_use").value_or(""));
  const auto token = [&](const std::optional<int64_t>& id) {
    const bool there = id && *id >= 0 && static_cast<uint64_t>(*id) < keys.tokens.size();
    return there ? std::string(keys.tokens.string_at(static_cast<size_t>(*id))) : std::string();
  };
  sources.bos = token(keys.bos_id);
  sources.eos = token(keys.eos_id);
  try {
    return sources.compile();
  } catch (const Error& e) {
    throw_error(e.code(), "{}: {}", file.name(), e.what());
  }
}

}  // namespace spyre::text
