#include "text/tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "formats/foreign.h"
#include "text/gguf_tokenizer.h"
#include "text/quote.h"
#include "text/rust_result.h"

namespace spyre::text {

namespace {

constexpr size_t kTokenizerJsonLimit = size_t{256} << 20;  // bytes; rust/text has the same limit
constexpr size_t kConfigJsonLimit = size_t{64} << 20;      // bytes; added_tokens_decoder makes some of them large

// A special token in tokenizer_config.json is a string, or an object with its text in "content".
std::optional<std::string> special_token(const nlohmann::json& config, const char* key) {
  const auto it = config.find(key);
  if (it == config.end() || it->is_null()) return std::nullopt;
  if (it->is_string()) return it->get<std::string>();
  if (it->is_object() && it->contains("content") && (*it)["content"].is_string())
    return (*it)["content"].get<std::string>();
  throw_error(ErrorCode::kCorruptData, "tokenizer_config.json: '{}' is neither a string nor an added token", key);
}

// What is kept of the file while it is parsed: three keys, of an added token its content, and no list. The whole tree
// could take 30 times the text (most of it `added_tokens_decoder`).
bool keep_of_config(int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
  using Event = nlohmann::json::parse_event_t;
  if (event == Event::array_start) return false;
  if (event != Event::key) return true;
  if (depth == 1) return value == "bos_token" || value == "eos_token" || value == "add_bos_token";
  return depth == 2 && value == "content";
}

TokenizerConfig parse_config(const std::string& text) {
  const nlohmann::json config = nlohmann::json::parse(text, keep_of_config, /*allow_exceptions=*/false);
  if (!config.is_object()) {
    formats::refuse_foreign(text, "tokenizer_config.json");
    throw_error(ErrorCode::kCorruptData, "tokenizer_config.json is not a JSON object");
  }
  TokenizerConfig out;
  out.bos_token = special_token(config, "bos_token");
  if (auto eos = special_token(config, "eos_token")) out.eos_tokens.push_back(*eos);
  if (const auto it = config.find("add_bos_token"); it != config.end() && !it->is_null()) {
    if (!it->is_boolean()) throw_error(ErrorCode::kCorruptData, "tokenizer_config.json: 'add_bos_token' is not a bool");
    out.add_bos = it->get<bool>();
  }
  return out;
}

}  // namespace

void Tokenizer::Free::operator()(SpyreTextTokenizer* tokenizer) const {
  spyre_text_tokenizer_free(tokenizer);
}

Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer::Tokenizer(std::string_view json) {
  SpyreTextTokenizer* handle = nullptr;
  call([&](SpyreTextBytes* e) { return spyre_text_tokenizer_new(bytes_of(json), json.size(), &handle, e); });
  handle_.reset(handle);
  vocab_size_ = static_cast<TokenId>(spyre_text_vocab_size(handle));  // below 2^22
  RustIds special;
  call([&](SpyreTextBytes* e) { return spyre_text_special_ids(handle, &special, e); });
  special_ids_.assign(special.data, special.data + special.size);
}

void Tokenizer::configure(const TokenizerConfig& config) {
  const auto id_of = [&](const std::string& token, const char* what) {
    const auto id = token_to_id(token);
    if (!id)
      throw_error(ErrorCode::kCorruptData, "the {} token {} is not in the tokenizer's vocabulary", what,
                  in_quotes(token));
    return *id;
  };
  if (config.bos_token) bos_id_ = id_of(*config.bos_token, "BOS");
  for (const std::string& token : config.eos_tokens) eos_ids_.push_back(id_of(token, "EOS"));
  std::sort(eos_ids_.begin(), eos_ids_.end());
  eos_ids_.erase(std::unique(eos_ids_.begin(), eos_ids_.end()), eos_ids_.end());
  if (config.add_bos && !bos_id_) {
    throw_error(ErrorCode::kCorruptData, "the tokenizer's configuration asks for a BOS, but names no BOS token");
  }
  add_bos_ = config.add_bos;
  const std::vector<TokenId> frame = encode("");
  frame_has_bos_ = !add_bos_ && bos_id_ && !frame.empty() && frame.front() == *bos_id_;
}

Tokenizer Tokenizer::from_json(std::string_view json, const TokenizerConfig& config) {
  Tokenizer tokenizer(json);
  tokenizer.configure(config);
  return tokenizer;
}

Tokenizer Tokenizer::from_model_dir(const std::filesystem::path& folder) {
  const auto path = folder / "tokenizer.json";
  std::error_code ec;
  if (!std::filesystem::exists(path, ec)) {
    if (std::filesystem::exists(folder / "tokenizer.model", ec)) {
      throw_error(ErrorCode::kUnsupported,
                  "'{}' has a SentencePiece tokenizer.model but no tokenizer.json: convert it with transformers",
                  folder.string());
    }
    throw_error(ErrorCode::kNotFound, "'{}' has no tokenizer.json", folder.string());
  }
  TokenizerConfig config;
  const auto config_path = folder / "tokenizer_config.json";
  if (std::filesystem::exists(config_path, ec)) config = parse_config(read_file(config_path, kConfigJsonLimit));
  const std::string json = read_file(path, kTokenizerJsonLimit);
  try {
    return from_json(json, config);
  } catch (const Error& e) {
    formats::refuse_foreign(json, path.string());
    throw_error(e.code(), "'{}': {}", folder.string(), e.what());
  }
}

Tokenizer Tokenizer::from_gguf(const formats::GgufFile& file) {
  return from_gguf(read_gguf_vocabulary(file));
}

Tokenizer Tokenizer::from_gguf(const GgufVocabulary& vocabulary) {
  const std::string json = gguf_tokenizer_json(vocabulary);  // first: its checks say more
  return from_json(json, gguf_tokenizer_config(vocabulary));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  RustIds ids;
  call([&](SpyreTextBytes* e) {
    return spyre_text_encode(handle_.get(), bytes_of(text), text.size(), options.add_special, options.parse_special,
                             &ids, e);
  });
  std::vector<TokenId> out(ids.data, ids.data + ids.size);
  if (!options.add_special || !bos_id_) return out;
  const bool starts_with_bos = !out.empty() && out.front() == *bos_id_;
  if (add_bos_ && !starts_with_bos) out.insert(out.begin(), *bos_id_);
  if (frame_has_bos_ && starts_with_bos && out.size() > 1 && out[1] == *bos_id_) out.erase(out.begin());
  return out;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::vector<uint32_t> raw;
  raw.reserve(ids.size());
  for (const TokenId id : ids) {
    if (id < 0) throw_error(ErrorCode::kInvalidArgument, "token id {} is negative", id);
    raw.push_back(static_cast<uint32_t>(id));
  }
  RustBytes text;
  call([&](SpyreTextBytes* e) {
    return spyre_text_decode(handle_.get(), raw.data(), raw.size(), skip_special, &text, e);
  });
  return text.str();
}

std::string Tokenizer::token_bytes(TokenId id) const {
  if (id < 0) throw_error(ErrorCode::kInvalidArgument, "token id {} is negative", id);
  RustBytes bytes;
  call([&](SpyreTextBytes* e) { return spyre_text_token_bytes(handle_.get(), static_cast<uint32_t>(id), &bytes, e); });
  return bytes.str();
}

std::optional<TokenId> Tokenizer::token_to_id(std::string_view token) const {
  int64_t id = -1;
  call([&](SpyreTextBytes* e) { return spyre_text_token_to_id(handle_.get(), bytes_of(token), token.size(), &id, e); });
  if (id < 0) return std::nullopt;
  return static_cast<TokenId>(id);
}

bool Tokenizer::is_special(TokenId id) const {
  return std::binary_search(special_ids_.begin(), special_ids_.end(), id);
}

}  // namespace spyre::text
