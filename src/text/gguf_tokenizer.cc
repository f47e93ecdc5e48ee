#include "text/gguf_tokenizer.h"

#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.h"
#include "formats/gguf.h"
#include "text/gguf_pipeline.h"
#include "text/quote.h"

namespace spyre::text {

namespace {

constexpr size_t kVocabularyLimit = size_t{1} << 22;  // tokens and merges each; rust/text has the same limit on ids
constexpr size_t kTextLimit = size_t{64} << 20;       // bytes of all tokens, and of all merges

// Of Llama 3; Qwen 2 differs in taking digits one by one.
constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Words end where a capital follows a small letter; digits one by one.
constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Json byte_level(bool use_regex, bool add_prefix_space) {
  return {
      {"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json sequence(Json first, Json second) {
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({std::move(first), std::move(second)})}};
}

Json split_then_bytes(std::string_view pattern) {
  return sequence({{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}},
                  byte_level(false, false));
}

Pipeline gpt2(bool prefix) {
  return {.normalizer = nullptr, .pre_tokenizer = byte_level(true, prefix)};
}
Pipeline digits(bool prefix) {
  return {.normalizer = nullptr,
          .pre_tokenizer = sequence({{"type", "Digits"}, {"individual_digits", true}}, byte_level(true, prefix))};
}
Pipeline llama3(bool) {
  return {
      .normalizer = nullptr, .pre_tokenizer = split_then_bytes(kLlama3Pattern), .add_bos = true, .ignore_merges = true};
}
Pipeline qwen2(bool) {
  return {.normalizer = {{"type", "NFC"}}, .pre_tokenizer = split_then_bytes(kQwen2Pattern)};
}
Pipeline tekken(bool) {
  return {
      .normalizer = nullptr, .pre_tokenizer = split_then_bytes(kTekkenPattern), .add_bos = true, .ignore_merges = true};
}

struct PreTokenizer {
  std::string_view name;
  Pipeline (*make)(bool add_prefix_space);
};
constexpr std::array<PreTokenizer, 13> kPreTokenizers{{{"", gpt2},
                                                       {"default", gpt2},
                                                       {"gpt-2", gpt2},
                                                       {"phi-2", gpt2},
                                                       {"smollm", digits},
                                                       {"starcoder", digits},
                                                       {"refact", digits},
                                                       {"llama-bpe", llama3},
                                                       {"llama3", llama3},
                                                       {"llama-v3", llama3},
                                                       {"qwen2", qwen2},
                                                       {"deepseek-r1-qwen", qwen2},
                                                       {"tekken", tekken}}};

Pipeline byte_level_pipeline(const GgufVocabulary& v) {
  std::string known;
  for (const PreTokenizer& p : kPreTokenizers) {
    if (p.name == v.pre) {
      Pipeline pipeline = p.make(v.add_space_prefix.value_or(false));
      pipeline.decoder = byte_level(true, true);
      return pipeline;
    }
    if (!p.name.empty()) known += (known.empty() ? "" : ", ") + std::string(p.name);
  }
  throw_error(ErrorCode::kUnsupported, "'{}': pre-tokenizer {} is not known; known are {}", v.source, in_quotes(v.pre),
              known);
}

Pipeline pipeline_of(const GgufVocabulary& v) {
  if (v.model == "gpt2") return byte_level_pipeline(v);
  if (v.model == "llama") return spm_pipeline(v);
  if (v.model == "bert") return word_piece_pipeline(v);
  throw_error(
      ErrorCode::kUnsupported,
      "'{}': tokenizer model {} is not read from GGUF; 'gpt2' (byte-level BPE), 'llama' (SentencePiece's BPE) and "
      "'bert' (WordPiece) are. Use the model's Hugging Face folder",
      v.source, in_quotes(v.model));
}

void check_vocabulary(const GgufVocabulary& v) {
  if (v.tokens.empty())
    throw_error(ErrorCode::kCorruptData, "'{}': tokenizer.ggml.tokens is absent or empty", v.source);
  if (!v.types.empty() && v.types.size() != v.tokens.size()) {
    throw_error(ErrorCode::kCorruptData, "'{}': {} tokens, but {} token types", v.source, v.tokens.size(),
                v.types.size());
  }
  std::unordered_set<std::string_view> seen;
  seen.reserve(v.tokens.size());
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    const auto type = static_cast<int32_t>(type_of(v, id));
    if (type < 1 || type > 6) throw_error(ErrorCode::kCorruptData, "'{}': token {} has type {}", v.source, id, type);
    if (!seen.insert(v.tokens[id]).second) {
      throw_error(ErrorCode::kCorruptData, "'{}': token {} is there twice; its second id is {}", v.source,
                  in_quotes(v.tokens[id]), id);
    }
  }
}

Json added_tokens(const GgufVocabulary& v) {
  Json added = Json::array();
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    const GgufTokenType type = type_of(v, id);
    const bool special = type == GgufTokenType::kControl || type == GgufTokenType::kUnknown;
    if (!special && type != GgufTokenType::kUserDefined) continue;
    added.push_back({{"id", id},
                     {"content", v.tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", special}});
  }
  return added;
}

// BOS before and EOS after every text, as far as the file asks for them. A pair of texts is two such texts.
Json post_processor(const GgufVocabulary& v, bool add_bos) {
  const bool add_eos = v.add_eos.value_or(false);
  if (!add_bos && !add_eos) return nullptr;
  Json special = Json::object();
  Json single = Json::array();
  Json pair = Json::array();
  const auto piece = [&](std::optional<int64_t> id, const char* key, int type_id) {
    if (!id)
      throw_error(ErrorCode::kCorruptData, "'{}': the tokenizer is to add a token, but has no {}", v.source, key);
    const std::string& token = token_at(v, *id, key);
    special[token] = {{"id", token}, {"ids", {*id}}, {"tokens", {token}}};
    return Json{{"SpecialToken", {{"id", token}, {"type_id", type_id}}}};
  };
  for (int i = 0; i < 2; ++i) {
    Json part = Json::array();
    if (add_bos) part.push_back(piece(v.bos, "bos_token_id", i));
    part.push_back({{"Sequence", {{"id", i == 0 ? "A" : "B"}, {"type_id", i}}}});
    if (add_eos) part.push_back(piece(v.eos, "eos_token_id", i));
    if (i == 0) single = part;
    pair.insert(pair.end(), part.begin(), part.end());
  }
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
}

// What can be said before anything is copied.
void check_is_read(const GgufVocabulary& v) {
  if (v.model == "bert") return;
  (void)pipeline_of({.source = v.source, .model = v.model, .pre = v.pre});
}

void copy_scores(const formats::GgufArray& from, GgufVocabulary& v) {
  if (v.model != "llama") return;  // others have them by habit
  if (from.size() > kVocabularyLimit)
    throw_error(ErrorCode::kResourceExhausted, "'{}': {} scores", v.source, from.size());
  for (size_t i = 0; i < from.size(); ++i) v.scores.push_back(static_cast<float>(from.float_at(i)));
}

std::string byte_level_model(const GgufVocabulary& v, bool ignore_merges) {
  std::string out = fmt::format(R"({{"type":"BPE","ignore_merges":{},"vocab":)", ignore_merges);
  append_vocabulary(out, v.tokens);
  out += R"(,"merges":[)";
  for (size_t i = 0; i < v.merges.size(); ++i) {
    if (i != 0) out += ',';
    append_json(out, v.merges[i]);
  }
  return out += "]}";
}

}  // namespace

GgufVocabulary read_gguf_vocabulary(const formats::GgufFile& file) {
  const formats::GgufTokenizerKeys keys = file.tokenizer();
  GgufVocabulary v;
  v.source = file.name();
  v.model = keys.model;
  v.pre = keys.pre;
  if (v.model.empty()) throw_error(ErrorCode::kCorruptData, "'{}' has no key tokenizer.ggml.model", v.source);
  // Bounded before the copies are made.
  const auto copy = [&](const formats::GgufArray& from, std::vector<std::string>& to, const char* key) {
    if (from.size() > kVocabularyLimit) {
      throw_error(ErrorCode::kResourceExhausted, "'{}': tokenizer.ggml.{} has {} entries; the limit is {}", v.source,
                  key, from.size(), kVocabularyLimit);
    }
    size_t bytes = 0;
    for (size_t i = 0; i < from.size(); ++i) {
      bytes += from.string_at(i).size();
      if (bytes > kTextLimit) {
        throw_error(ErrorCode::kResourceExhausted, "'{}': tokenizer.ggml.{} has more than {} bytes", v.source, key,
                    kTextLimit);
      }
      to.emplace_back(from.string_at(i));
    }
  };
  check_is_read(v);  // before copying
  copy(keys.tokens, v.tokens, "tokens");
  copy(keys.merges, v.merges, "merges");
  if (keys.token_types.size() > kVocabularyLimit) {
    throw_error(ErrorCode::kResourceExhausted, "'{}': {} token types", v.source, keys.token_types.size());
  }
  for (size_t i = 0; i < keys.token_types.size(); ++i) {
    const int64_t type = keys.token_types.int_at(i);
    v.types.push_back(type == static_cast<int32_t>(type) ? static_cast<int32_t>(type) : 0);
  }
  copy_scores(keys.scores, v);
  v.bos = keys.bos_id;
  v.eos = keys.eos_id;
  v.eot = keys.eot_id;
  v.eom = keys.eom_id;
  v.unknown = keys.unknown_id;
  v.separator = keys.separator_id;
  v.add_bos = keys.add_bos;
  v.add_eos = keys.add_eos;
  v.add_space_prefix = keys.add_space_prefix;
  return v;
}

std::string gguf_tokenizer_json(const GgufVocabulary& v) {
  check_is_read(v);
  check_vocabulary(v);
  const Pipeline pipeline = pipeline_of(v);
  std::string out = R"({"version":"1.0")";
  const auto section = [&](const char* name, const Json& value) {
    out += fmt::format(R"(,"{}":)", name);
    try {
      out += value.dump();
    } catch (const Json::exception&) {
      throw_error(ErrorCode::kCorruptData, "'{}': a special token is not UTF-8", v.source);
    }
  };
  section("added_tokens", added_tokens(v));
  section("normalizer", pipeline.normalizer);
  section("pre_tokenizer", pipeline.pre_tokenizer);
  section("post_processor", pipeline.post_processor.is_null() ? post_processor(v, v.add_bos.value_or(pipeline.add_bos))
                                                              : pipeline.post_processor);
  section("decoder", pipeline.decoder);
  out += R"(,"model":)";
  out += pipeline.model.empty() ? byte_level_model(v, pipeline.ignore_merges) : pipeline.model;
  return out += "}";
}

TokenizerConfig gguf_tokenizer_config(const GgufVocabulary& v) {
  TokenizerConfig config;
  if (v.bos) config.bos_token = token_at(v, *v.bos, "bos_token_id");
  if (v.eos) config.eos_tokens.push_back(token_at(v, *v.eos, "eos_token_id"));
  if (v.eot) config.eos_tokens.push_back(token_at(v, *v.eot, "eot_token_id"));
  if (v.eom) config.eos_tokens.push_back(token_at(v, *v.eom, "eom_token_id"));
  return config;
}

}  // namespace spyre::text
