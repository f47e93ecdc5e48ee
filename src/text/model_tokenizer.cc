#include "text/model_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>

namespace spyre::text {

std::optional<Tokenizer> open_tokenizer(const formats::Checkpoint& checkpoint) {
  if (checkpoint.gguf() != nullptr) return Tokenizer::from_gguf(*checkpoint.gguf());
  std::error_code error;  // a link that leads nowhere or to itself is for from_model_dir to name
  const auto status = std::filesystem::symlink_status(checkpoint.folder() / "tokenizer.json", error);
  if (status.type() == std::filesystem::file_type::not_found) return std::nullopt;
  return Tokenizer::from_model_dir(checkpoint.folder());
}

std::vector<int32_t> eos_token_ids(const formats::Checkpoint& checkpoint, const std::optional<Tokenizer>& tokenizer) {
  std::vector<int32_t> ids;
  for (const int64_t id : checkpoint.config().eos_token_ids) ids.push_back(static_cast<int32_t>(id));
  if (tokenizer) ids.insert(ids.end(), tokenizer->eos_ids().begin(), tokenizer->eos_ids().end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::vector<std::vector<TokenId>> word_spellings(const Tokenizer& tokenizer, std::string_view word) {
  const std::string bare(word.substr(std::min(word.find_first_not_of(' '), word.size())));
  std::vector<TokenId> plain = tokenizer.encode(bare, {.add_special = false});
  if (plain.empty()) return {};
  std::vector<TokenId> spaced = tokenizer.encode(" " + bare, {.add_special = false});
  const bool other = spaced.size() == plain.size() && spaced.front() != plain.front();
  std::vector<std::vector<TokenId>> spellings;
  spellings.push_back(std::move(plain));
  if (other) spellings.push_back(std::move(spaced));
  return spellings;
}

}  // namespace spyre::text
