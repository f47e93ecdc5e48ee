// GGUF tensor names to Hugging Face's, for the "llama" architecture.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace spyre::formats {

enum class RowOrder : uint8_t { kPlain, kQueryHeads, kKeyHeads };  // whose heads the rows are interleaved in

struct TranslatedName {
  std::string name;  // empty: the tensor is known, but no weight (rope_freqs: see ModelConfig::rope_freq_factors)
  RowOrder order = RowOrder::kPlain;
};

// Nothing for a name that this architecture does not have, or of a layer at or past `layers`.
std::optional<TranslatedName> translate_llama_name(std::string_view gguf_name, int64_t layers);

}  // namespace spyre::formats
