#include "cli/prompt.h"

#include <CLI/CLI.hpp>
#include <limits>

#include "base/error.h"
#include "cli/command.h"
#include "cli/model_options.h"

namespace spyre::cli {

void PromptOptions::add_to(CLI::App& command, const char* group) {
  auto* by_text = command.add_option_function<std::string>(
      "--prompt",
      [this](const std::string& value) {
        text = value;
        has_text = true;
      },
      "Text; special tokens such as <|im_start|> are parsed");
  auto* by_ids = command.add_option_function<std::string>(
      "--prompt-ids",
      [this](const std::string& value) {
        ids = value;
        has_ids = true;
      },
      "Token ids, comma-separated: 5,17,3 (needs no tokenizer)");
  by_text->type_name("TEXT")->group(group)->excludes(by_ids);
  by_ids->type_name("IDS")->group(group);
}

std::vector<int32_t> PromptOptions::parsed_ids() const {
  std::vector<int32_t> out;
  for (int64_t id : parse_list(ids, "--prompt-ids")) {
    if (id < 0 || id > std::numeric_limits<int32_t>::max()) {
      throw UsageError(fmt::format("--prompt-ids: {} is no token id: they are 0 or more", id));
    }
    out.push_back(static_cast<int32_t>(id));
  }
  return out;
}

std::vector<int32_t> PromptOptions::token_ids(const std::optional<text::Tokenizer>& tokenizer) const {
  if (has_ids) return parsed_ids();
  if (!tokenizer) {
    throw_error(ErrorCode::kNotFound, "the model has no tokenizer.json: give --prompt-ids instead of --prompt");
  }
  return tokenizer->encode(text, {.add_special = true, .parse_special = true});
}

}  // namespace spyre::cli
