// SentencePiece's BPE and WordPiece out of a GGUF file; see gguf_tokenizer.h for how.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "base/error.h"
#include "text/gguf_pipeline.h"
#include "text/quote.h"

namespace spyre::text {

namespace {

constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // U+2581
constexpr size_t kPieceLimit = 256;  // bytes of a piece that is split into merges; the longest in use have about 100
constexpr size_t kMergeLimit = 1 << 22;  // merges

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

struct SplitPiece {
  float score;
  uint32_t joined, left, right;  // ids
};

// Every split of a normal piece into two, best score first.
std::vector<SplitPiece> splits_of(const GgufVocabulary& v) {
  std::unordered_map<std::string_view, uint32_t> normal;
  normal.reserve(v.tokens.size());
  for (size_t id = 0; id < v.tokens.size(); ++id)
    if (type_of(v, id) == GgufTokenType::kNormal) normal.emplace(v.tokens[id], static_cast<uint32_t>(id));
  std::vector<SplitPiece> splits;
  for (uint32_t id = 0; id < v.tokens.size(); ++id) {
    if (type_of(v, id) != GgufTokenType::kNormal) continue;
    const std::string_view piece = v.tokens[id];
    if (piece.size() > kPieceLimit) {
      throw_error(ErrorCode::kUnsupported, "'{}': token {} has {} bytes; pieces of at most {} are read", v.source, id,
                  piece.size(), kPieceLimit);
    }
    const size_t first = splits.size();
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      if (is_continuation(piece[cut])) continue;
      const auto left = normal.find(piece.substr(0, cut));
      if (left == normal.end()) continue;
      const auto right = normal.find(piece.substr(cut));
      if (right != normal.end()) splits.push_back({v.scores[id], id, left->second, right->second});
    }
    if (splits.size() > kMergeLimit)
      throw_error(ErrorCode::kResourceExhausted, "'{}': more than {} merges", v.source, kMergeLimit);
    std::sort(splits.begin() + static_cast<ptrdiff_t>(first), splits.end(),
              [](const auto& a, const auto& b) { return std::pair(a.left, a.right) < std::pair(b.left, b.right); });
  }
  std::stable_sort(splits.begin(), splits.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
  return splits;
}

std::string spm_model(const GgufVocabulary& v) {
  if (v.scores.size() != v.tokens.size()) {
    throw_error(ErrorCode::kCorruptData, "'{}': {} tokens, but {} scores", v.source, v.tokens.size(), v.scores.size());
  }
  for (size_t id = 0; id < v.scores.size(); ++id)
    if (std::isnan(v.scores[id]))
      throw_error(ErrorCode::kCorruptData, "'{}': the score of token {} is not a number", v.source, id);
  std::string out = R"({"type":"BPE","fuse_unk":true,"byte_fallback":true,"unk_token":)";
  append_json(out, token_at(v, v.unknown.value_or(0), "unknown_token_id"));
  out += R"(,"vocab":)";
  append_vocabulary(out, v.tokens);
  out += R"(,"merges":[)";
  bool first = true;
  for (const SplitPiece& split : splits_of(v)) {
    if (!first) out += ',';
    first = false;
    out += '[';
    append_json(out, v.tokens[split.left]);
    out += ',';
    append_json(out, v.tokens[split.right]);
    out += ']';
  }
  return out += "]}";
}

Json replace(std::string_view from, std::string_view to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

bool in_brackets(std::string_view token) {
  return token.size() > 1 && token.front() == '[' && token.back() == ']';
}

// The token as Hugging Face has it: beginnings of words plain, continuations behind "##".
std::string word_piece_token(std::string_view token) {
  if (in_brackets(token)) return std::string(token);
  if (token.starts_with(kMetaspace)) return std::string(token.substr(kMetaspace.size()));
  return "##" + std::string(token);
}

// The id that a key gives, or that of the token of that name.
int64_t named(const GgufVocabulary& v, std::optional<int64_t> id, const char* key, std::string_view name) {
  if (id) {
    (void)token_at(v, *id, key);
    return *id;
  }
  const auto found = std::find(v.tokens.begin(), v.tokens.end(), name);
  if (found == v.tokens.end()) throw_error(ErrorCode::kCorruptData, "'{}': no {} and no token {}", v.source, key, name);
  return found - v.tokens.begin();
}

Json bert_frame(const GgufVocabulary& v) {
  const int64_t cls = named(v, v.bos, "bos_token_id", "[CLS]");
  const int64_t sep = named(v, v.separator, "seperator_token_id", "[SEP]");
  const auto special = [&](int64_t id, int type) {
    return Json{{"SpecialToken", {{"id", v.tokens[static_cast<size_t>(id)]}, {"type_id", type}}}};
  };
  const auto sequence = [](const char* name, int type) {
    return Json{{"Sequence", {{"id", name}, {"type_id", type}}}};
  };
  Json tokens = Json::object();
  for (const int64_t id : {cls, sep}) {
    const std::string& token = v.tokens[static_cast<size_t>(id)];
    tokens[token] = {{"id", token}, {"ids", {id}}, {"tokens", {token}}};
  }
  return {{"type", "TemplateProcessing"},
          {"single", {special(cls, 0), sequence("A", 0), special(sep, 0)}},
          {"pair", {special(cls, 0), sequence("A", 0), special(sep, 0), sequence("B", 1), special(sep, 1)}},
          {"special_tokens", tokens}};
}

}  // namespace

Pipeline spm_pipeline(const GgufVocabulary& v) {
  if (!v.pre.empty() && v.pre != "default") {
    throw_error(ErrorCode::kUnsupported,
                "'{}': pre-tokenizer {} is not known for the tokenizer model 'llama'; 'default' is", v.source,
                in_quotes(v.pre));
  }
  const bool prefix = v.add_space_prefix.value_or(true);
  Json spaces = replace(" ", kMetaspace);
  Json decoders = {replace(kMetaspace, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  if (prefix) {
    spaces = {{"type", "Sequence"}, {"normalizers", {{{"type", "Prepend"}, {"prepend", kMetaspace}}, spaces}}};
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  return {.normalizer = spaces,
          .pre_tokenizer = nullptr,
          .decoder = {{"type", "Sequence"}, {"decoders", decoders}},
          .post_processor = nullptr,
          .add_bos = true,
          .model = v.tokens.empty() ? "" : spm_model(v)};
}

Pipeline word_piece_pipeline(const GgufVocabulary& v) {
  std::vector<std::string> tokens;
  bool capitals = false;
  for (const std::string& token : v.tokens) {
    tokens.push_back(word_piece_token(token));
    capitals |=
        !in_brackets(token) && std::any_of(token.begin(), token.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
  }
  std::string model =
      R"({"type":"WordPiece","continuing_subword_prefix":"##","max_input_chars_per_word":100,"unk_token":)";
  append_json(model, v.tokens[static_cast<size_t>(named(v, v.unknown, "unknown_token_id", "[UNK]"))]);
  model += R"(,"vocab":)";
  append_vocabulary(model, tokens);
  model += '}';
  const bool framed = v.add_bos.value_or(true) || v.add_eos.value_or(true);
  return {.normalizer = {{"type", "BertNormalizer"},
                         {"clean_text", true},
                         {"handle_chinese_chars", true},
                         {"strip_accents", nullptr},
                         {"lowercase", !capitals}},
          .pre_tokenizer = {{"type", "BertPreTokenizer"}},
          .decoder = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}},
          .post_processor = framed ? bert_frame(v) : Json(nullptr),
          .model = model};
}

GgufTokenType type_of(const GgufVocabulary& v, size_t id) {
  return v.types.empty() ? GgufTokenType::kNormal : static_cast<GgufTokenType>(v.types[id]);
}

const std::string& token_at(const GgufVocabulary& v, int64_t id, const char* key) {
  if (id < 0 || static_cast<size_t>(id) >= v.tokens.size()) {
    throw_error(ErrorCode::kCorruptData, "'{}': tokenizer.ggml.{} is {}, but there are {} tokens", v.source, key, id,
                v.tokens.size());
  }
  return v.tokens[static_cast<size_t>(id)];
}

void append_json(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_vocabulary(std::string& out, const std::vector<std::string>& tokens) {
  out += '{';
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (id != 0) out += ',';
    append_json(out, tokens[id]);
    out += fmt::format(":{}", id);
  }
  out += '}';
}

}  // namespace spyre::text
