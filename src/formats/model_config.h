// What a model is: the numbers of a Hugging Face config.json (with generation_config.json), or of a GGUF file's keys,
// in one plain value. Every number has been range-checked; nothing here knows which models are built.
//
// `raw` keeps the whole configuration, so that a model can refuse the keys that change its maths. Errors name file, key
// and value: kCorruptData for a missing key or a number out of range, kUnsupported for a configuration that is
// well-formed but cannot be read here (quantised by a foreign method, a dtype that is no float).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/export.h"

namespace spyre::formats {

class GgufFile;

// Rotary embedding. Fields that a type does not use keep their defaults. Types other than "default", "linear", "llama3"
// and "yarn" ("longrope", "dynamic", ...) are carried by name for the model to refuse; their own keys stand in `raw`.
struct RopeConfig {
  double theta = 10000.0;
  std::string type = "default";
  double factor = 1.0;                // linear, llama3, yarn
  double low_freq_factor = 1.0;       // llama3
  double high_freq_factor = 4.0;      // llama3; above low_freq_factor
  int64_t original_max_position = 0;  // llama3, yarn
  double beta_fast = 32.0;            // yarn: turns within the original context above which a frequency is kept,
  double beta_slow = 1.0;             // and below which it is divided by `factor`
  bool truncate = true;               // yarn: whether the bounds between these are rounded to whole dimensions
  double attention_factor = 1.0;      // yarn: what cosines and sines are multiplied by, worked out from the file's keys
  double partial_rotary_factor = 1.0;  // share of the head that is rotated
};

struct ModelConfig {
  std::vector<std::string> architectures;  // {"LlamaForCausalLM"}; may be empty
  std::string model_type;                  // "llama"; may be empty
  int64_t hidden_size = 0;                 // 1 .. 65536
  int64_t intermediate_size = 0;           // 1 .. 2^20
  int64_t num_hidden_layers = 0;           // 1 .. 1024
  int64_t num_attention_heads = 0;         // 1 .. 1024
  int64_t num_key_value_heads = 0;         // divides num_attention_heads
  int64_t head_dim = 0;                    // 1 .. 1024; hidden_size / num_attention_heads when the file gives none
  int64_t vocab_size = 0;                  // 1 .. 2^20
  int64_t max_position_embeddings = 0;     // 1 .. 2^24
  double rms_norm_eps = 1e-6;              // 0 < eps < 1
  bool tie_word_embeddings = false;        // the family's default when the file does not say
  std::string hidden_act = "silu";
  bool attention_bias = false;  // as the file says; a family with built-in biases (qwen2) says nothing
  bool mlp_bias = false;
  std::optional<DType> dtype;  // torch_dtype or dtype: f32, f16 or bf16
  RopeConfig rope;
  // Models with one rotary embedding per kind of layer: {"full_attention", ...}, {"sliding_attention", ...}. Usually
  // empty.
  std::vector<std::pair<std::string, RopeConfig>> rope_by_layer_type;
  // GGUF only: what the inverse frequencies are divided by, head_dim / 2 numbers (llama3 scaling, worked out by whoever
  // made the file). Replaces `rope.type`, which then is "default".
  std::optional<std::vector<float>> rope_freq_factors;
  std::vector<int64_t> eos_token_ids;   // sorted, each once; config and generation_config together. May be empty
  std::optional<int64_t> bos_token_id;  // ids are within the vocabulary
  nlohmann::json raw;  // config.json, or for GGUF the same keys as Hugging Face would have written them
};

// `generation` is the text of generation_config.json, or empty. The names stand in messages.
SPYRE_API ModelConfig parse_model_config(std::string_view config, std::string_view generation,
                                         const std::string& config_name, const std::string& generation_name);

// For the families of formats/tensor_names.h (kUnsupported for any other, by name).
SPYRE_API ModelConfig model_config_from_gguf(const GgufFile& file);

}  // namespace spyre::formats
