// The model families that GGUF files are read for, and their tensor names as Hugging Face has them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace spyre::formats {

struct GgufFamily {
  const char* name;          // general.architecture, and Hugging Face's model_type
  const char* architecture;  // as in config.json
  bool interleaved;          // rows of Q and K stand as rotary pairs (2i, 2i + 1)
  int bias_keys = 0;         // config.json says whether there are biases: 1 of attention, 2 of the MLP, too
  bool has_multipliers = false;
  bool needs_head_dim = false;  // config.json must say it
};

const GgufFamily* find_gguf_family(std::string_view name);  // nullptr when it is not read
std::string gguf_families();                                // "'llama', ...", for messages

enum class RowOrder : uint8_t { kPlain, kQueryHeads, kKeyHeads };  // whose heads the rows are interleaved in

struct TranslatedName {
  std::string name;  // empty: the tensor is known, but no weight (rope_freqs: see ModelConfig::rope_freq_factors)
  RowOrder order = RowOrder::kPlain;
};

// Nothing for a name that no family here has, or of a layer at or past `layers`.
std::optional<TranslatedName> translate_gguf_name(const GgufFamily& family, std::string_view gguf_name, int64_t layers);

}  // namespace spyre::formats
