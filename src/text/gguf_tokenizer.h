// A tokenizer.json out of the tokenizer keys of a GGUF file.
//
// GGUF keeps the vocabulary and the merges of the original tokenizer, but only a name for its pre-tokenizer. The
// pipeline behind each name is written out here as the models' own tokenizer.json have it (so Qwen gets its NFC
// normalizer back, which llama.cpp leaves out); a name that is not in the list is refused, since a guess would give
// other ids without a word.
//
//   model  pre                                        models
//   gpt2   (absent), default, gpt-2, phi-2            GPT-2
//          smollm, starcoder, refact                  SmolLM, StarCoder, Granite 3
//          llama-bpe, llama3, llama-v3                Llama 3
//          qwen2, deepseek-r1-qwen                    Qwen 2, 2.5 and 3
//          tekken                                     Mistral Nemo
//   llama  (absent), default                          Llama 2, Mistral, Gemma: SentencePiece's BPE
//   bert   any                                        BERT and its relatives: WordPiece
//
// SentencePiece's BPE joins the adjacent pair whose join has the best score. Here every way to split a normal piece in
// two normal pieces is a merge, in the order of scores (then ids), which gives the same joins where scores differ, as
// they do in such vocabularies; text that no piece covers becomes bytes. WordPiece comes with beginnings of words
// marked (U+2581) where Hugging Face marks continuations; whether it lowercases is told by whether any piece has a
// capital.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace spyre::text {

// The values of tokenizer.ggml.token_type.
enum class GgufTokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// The keys tokenizer.ggml.*, copied.
struct GgufVocabulary {
  std::string source;  // the file, for messages
  std::string model;
  std::string pre;
  std::vector<std::string> tokens;  // the index is the id
  std::vector<std::string> merges;  // "left right"
  std::vector<int32_t> types;       // GgufTokenType; empty: all normal
  std::vector<float> scores;        // "llama" only: one per token
  std::optional<int64_t> bos, eos, eot, eom, unknown, separator;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
};

GgufVocabulary read_gguf_vocabulary(const formats::GgufFile& file);

// Throws kUnsupported for a model or pre-tokenizer that is not listed above, kCorruptData for tokens that are not
// UTF-8, are there twice or do not match `types`, and for ids out of range.
std::string gguf_tokenizer_json(const GgufVocabulary& vocabulary);

// bos, and every id at which generation ends: eos, eot (end of turn) and eom (end of message). No add_bos: the
// post-processor in the tokenizer.json adds it.
TokenizerConfig gguf_tokenizer_config(const GgufVocabulary& vocabulary);

}  // namespace spyre::text
