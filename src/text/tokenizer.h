// Text to token ids and back, with Hugging Face's own library behind it: the ids are those of the reference.
//
// A Tokenizer does not change once it is made and may be used from any number of threads at once. It is movable and
// owns everything it needs: the file it came from may go.
//
// Files are hostile until read: what is damaged, contradicts itself or could run without bound is refused with
// kCorruptData, what is well-formed but not built here with kUnsupported and its name, never guessed. Padding,
// truncation and BPE dropout that a tokenizer.json carries from its training are ignored.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct SpyreTextTokenizer;

namespace spyre::formats {
class GgufFile;
}

namespace spyre::text {

struct GgufVocabulary;

using TokenId = int32_t;

struct EncodeOptions {
  // Add what the model's configuration adds around a text: usually one BOS. A BOS that the text itself starts with (a
  // chat template wrote it, and it was parsed) is not doubled.
  bool add_special = true;
  // Read the text of special tokens as these tokens. Off, a user's "<|im_end|>" is ordinary text. Added tokens that are
  // not special (runs of spaces, say) are found either way.
  bool parse_special = false;
};

// The special tokens of a model, by their text, as tokenizer_config.json names them.
struct TokenizerConfig {
  std::optional<std::string> bos_token;
  std::vector<std::string> eos_tokens;
  // true: encode() starts with BOS even where the post-processor of tokenizer.json does not add one. Otherwise the
  // post-processor alone decides, as in transformers 5.
  bool add_bos = false;
};

class Tokenizer {
 public:
  // The text of a tokenizer.json, at most 256 MiB. Tokens that `config` names must be in the vocabulary.
  static Tokenizer from_json(std::string_view json, const TokenizerConfig& config = {});

  // A model folder: tokenizer.json, and tokenizer_config.json where there is one. kNotFound names what is missing.
  static Tokenizer from_model_dir(const std::filesystem::path& folder);

  // The keys tokenizer.ggml.* of a GGUF file: BPE and WordPiece with the pre-tokenizers that gguf_tokenizer.h
  // lists; others are refused by name.
  static Tokenizer from_gguf(const formats::GgufFile& file);
  static Tokenizer from_gguf(const GgufVocabulary& vocabulary);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // `text` is UTF-8 of at most 4 MiB (less where the model's normalizer can make a text much longer); other bytes are
  // kInvalidArgument with their offset.
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const;

  // The text of `ids`. Ids out of the vocabulary give nothing; bytes that are no characters give U+FFFD.
  std::string decode(std::span<const TokenId> ids, bool skip_special = true) const;

  // The bytes that a token stands for inside a text: maybe only part of a character. kInvalidArgument for an id that is
  // not in the vocabulary.
  std::string token_bytes(TokenId id) const;

  // By the vocabulary's spelling ("Ġthe", "<|im_end|>").
  std::optional<TokenId> token_to_id(std::string_view token) const;

  TokenId vocab_size() const { return vocab_size_; }  // the largest id + 1; a model's may be larger (padding)
  std::optional<TokenId> bos_id() const { return bos_id_; }
  const std::vector<TokenId>& eos_ids() const { return eos_ids_; }          // ascending; may be empty
  const std::vector<TokenId>& special_ids() const { return special_ids_; }  // ascending
  bool is_special(TokenId id) const;

 private:
  friend class Detokenizer;
  explicit Tokenizer(std::string_view json);
  void configure(const TokenizerConfig& config);

  struct Free {
    void operator()(SpyreTextTokenizer* tokenizer) const;
  };
  std::unique_ptr<SpyreTextTokenizer, Free> handle_;
  TokenId vocab_size_ = 0;
  std::optional<TokenId> bos_id_;
  std::vector<TokenId> eos_ids_;
  std::vector<TokenId> special_ids_;
  bool add_bos_ = false;        // the configuration asks for it
  bool frame_has_bos_ = false;  // the post-processor adds one
};

}  // namespace spyre::text
