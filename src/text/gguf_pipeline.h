// How a vocabulary of a GGUF file becomes the sections of a tokenizer.json. Inside this room only.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/gguf_tokenizer.h"

namespace spyre::text {

using Json = nlohmann::json;

// What stands behind a tokenizer's model and the name of its pre-tokenizer.
struct Pipeline {
  Json normalizer, pre_tokenizer, decoder;
  Json post_processor;   // null: BOS and EOS as the file asks for them
  bool add_bos = false;  // when the file does not say
  bool ignore_merges = false;
  std::string model;  // the section's text; empty: byte-level BPE with the file's merges
};

// REQUIRE for all but the names: a checked vocabulary (types match tokens, each token once).
Pipeline spm_pipeline(const GgufVocabulary& v);
Pipeline word_piece_pipeline(const GgufVocabulary& v);

GgufTokenType type_of(const GgufVocabulary& v, size_t id);
// |key| stands in the message for an id that is out of range.
const std::string& token_at(const GgufVocabulary& v, int64_t id, const char* key);

// Appends |text| as a JSON string. Faster than a tree of a hundred thousand values, and the text stays bytes: the
// reader of the JSON checks that it is UTF-8.
void append_json(std::string& out, std::string_view text);
// Appends an object from each token to its index.
void append_vocabulary(std::string& out, const std::vector<std::string>& tokens);

}  // namespace spyre::text
