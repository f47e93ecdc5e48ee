// What a checkpoint says of its texts: its tokenizer, and the tokens that end an answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "formats/checkpoint.h"
#include "text/tokenizer.h"

namespace spyre::text {

// The tokenizer of a model folder or GGUF file; none when a folder has no tokenizer.json.
std::optional<Tokenizer> open_tokenizer(const formats::Checkpoint& checkpoint);

// The tokens that end a text: those of the model's configuration and of its tokenizer, ascending.
std::vector<int32_t> eos_token_ids(const formats::Checkpoint& checkpoint, const std::optional<Tokenizer>& tokenizer);

// How |word|, its leading spaces apart, is spelt at the start of a text, and after a space where the tokenizer has
// another spelling of as many tokens: what must not be drawn when the word is a bad word. Empty for a word without
// tokens.
std::vector<std::vector<TokenId>> word_spellings(const Tokenizer& tokenizer, std::string_view word);

}  // namespace spyre::text
