// What a fuzzer does with its input, shared with the test that replays the corpora: each function reads the bytes as
// one kind of file, uses everything it was given, and returns the error's text ("" when the file was taken). Anything
// but an Error leaves the function and is a bug.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "formats/checkpoint.h"
#include "formats/gguf.h"
#include "formats/model_config.h"
#include "formats/safetensors.h"

namespace spyre::formats {

inline std::string fuzz_gguf(std::span<const std::byte> bytes) {
  try {
    auto file = GgufFile::from_bytes(bytes, "fuzz.gguf");
    const GgufTokenizerKeys keys = file->tokenizer();
    size_t sum = 0;
    for (size_t i = 0; i < keys.tokens.size(); ++i)
      for (char c : keys.tokens.string_at(i)) sum += static_cast<unsigned char>(c);
    for (size_t i = 0; i < keys.token_types.size(); ++i) sum += static_cast<size_t>(keys.token_types.int_at(i));
    for (size_t i = 0; i < keys.scores.size(); ++i) sum += keys.scores.float_at(i) > 0;
    for (const GgufTensor& t : file->tensors())
      for (std::byte b : file->data(t)) sum += static_cast<size_t>(b);
    volatile size_t sink = sum;
    (void)sink;
    const auto checkpoint = Checkpoint::from_gguf(std::move(file));
    for (const TensorInfo& t : checkpoint->tensors()) {
      const int64_t rows = std::min<int64_t>(t.rows(), 100);
      std::vector<std::byte> out(static_cast<size_t>(rows * t.row_elements()) * 2);
      checkpoint->read_rows(t, t.rows() - rows, rows, DType::kF16, out);
    }
  } catch (const Error& error) {
    SPYRE_CHECK(error.code() != ErrorCode::kInternal, "{}", error.what());
    return error.what();
  }
  return "";
}

// A safetensors file; and, because both are JSON under a hostile hand, an index.
inline std::string fuzz_safetensors(std::span<const std::byte> bytes) {
  try {
    if (!bytes.empty() && static_cast<char>(bytes.front()) == '{') {
      parse_shard_index({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "fuzz.index.json");
      return "";
    }
    const auto file = SafetensorsFile::from_bytes(bytes, "fuzz.safetensors");
    size_t sum = 0;
    for (const SafetensorsTensor& t : file->tensors())
      for (std::byte b : file->data(t)) sum += static_cast<size_t>(b);
    volatile size_t sink = sum;
    (void)sink;
  } catch (const Error& error) {
    SPYRE_CHECK(error.code() != ErrorCode::kInternal, "{}", error.what());
    return error.what();
  }
  return "";
}

// config.json, and behind a NUL byte generation_config.json.
inline std::string fuzz_config(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t nul = text.find('\0');
  try {
    const ModelConfig config = parse_model_config(
        text.substr(0, nul), nul == std::string_view::npos ? std::string_view() : text.substr(nul + 1), "config.json",
        "generation_config.json");
    SPYRE_CHECK(config.head_dim > 0 && config.num_attention_heads % config.num_key_value_heads == 0);
    for (int64_t id : config.eos_token_ids) SPYRE_CHECK(id >= 0 && id < config.vocab_size);
  } catch (const Error& error) {
    SPYRE_CHECK(error.code() != ErrorCode::kInternal, "{}", error.what());
    return error.what();
  }
  return "";
}

}  // namespace spyre::formats
