// The flags that name a prompt, as text or as ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace CLI {
class App;
}

namespace spyre::cli {

struct PromptOptions {
  std::string text, ids;
  bool has_text = false, has_ids = false;

  // |group| is the heading under which --help lists them.
  void add_to(CLI::App& command, const char* group);
  bool given() const { return has_text || has_ids; }

  // Throws UsageError when --prompt-ids is no list of token ids.
  std::vector<int32_t> parsed_ids() const;
  // The ids of the prompt. Throws Error(kNotFound) for a text without a tokenizer, and what encoding throws.
  std::vector<int32_t> token_ids(const std::optional<text::Tokenizer>& tokenizer) const;
};

}  // namespace spyre::cli
