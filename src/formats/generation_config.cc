#include "formats/generation_config.h"

#include <fmt/format.h>

#include "base/file.h"
#include "formats/checkpoint.h"
#include "formats/config_reader.h"
#include "formats/json.h"

namespace spyre::formats {
namespace {

constexpr double kTiny = 1e-9;  // stands for "above 0"
constexpr int64_t kMostTokens = int64_t{1} << 53;

template <typename T>
void append(std::string& text, const char* name, const std::optional<T>& value) {
  if (value) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, *value);
}

}  // namespace

std::string GenerationDefaults::to_string() const {
  std::string text;
  append(text, "temperature", temperature);
  append(text, "top_p", top_p);
  append(text, "top_k", top_k);
  append(text, "min_p", min_p);
  append(text, "repetition_penalty", repetition_penalty);
  append(text, "max_new_tokens", max_new_tokens);
  return text;
}

GenerationDefaults parse_generation_defaults(std::string_view text, const std::string& name) {
  const nlohmann::json tree = parse_json_object(text, name);
  const ConfigReader in(tree, name);
  return {.temperature = in.number("temperature", 0, 1e6),
          .top_p = in.number("top_p", kTiny, 1),
          .top_k = in.integer("top_k", -1, kMostTokens),
          .min_p = in.number("min_p", 0, 1),
          .repetition_penalty = in.number("repetition_penalty", kTiny, 1e6),
          .max_new_tokens = in.integer("max_new_tokens", 1, kMostTokens)};
}

GenerationDefaults read_generation_defaults(const Checkpoint& checkpoint) {
  if (checkpoint.is_gguf()) return {};
  const std::filesystem::path path = checkpoint.folder() / "generation_config.json";
  std::error_code error;
  if (std::filesystem::status(path, error).type() == std::filesystem::file_type::not_found) return {};
  return parse_generation_defaults(read_file(path, kMaxJsonBytes), path.string());
}

}  // namespace spyre::formats
