// What sizing has to know of a model: its dimensions, whatever the family, read from the configuration keys that
// families use for them. A decoder or an encoder of equal layers; nothing here knows how a family computes.
//
// What the configuration does not say is assumed, and said: |assumed| has one line for each such value.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace spyre::sizing {

struct ModelShape {
  std::string family;    // model_type, or the first architecture
  bool encoder = false;  // bidirectional, no KV cache, no output head
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_size = 0;
  int64_t mlp = 0;                             // width of the MLP, or of one expert
  bool gated_mlp = true;                       // gate, up and down; otherwise up and down
  int64_t experts = 0, experts_per_token = 0;  // 0: no mixture
  int64_t shared_mlp = 0;                      // width of what every token goes through beside the experts
  int64_t vocab = 0, positions = 0, token_types = 0;
  bool rotary = true;  // otherwise a table of learned positions
  bool tied = false;   // the head has the embedding's values
  bool qkv_bias = false, output_bias = false, mlp_bias = false;
  bool rms_norm = true;     // one vector a norm; otherwise weight and bias
  bool head_norms = false;  // of query and key heads
  std::vector<std::string> assumed;
};

// Throws Error(kCorruptData) naming |name| and the key for a number that is missing or out of range,
// Error(kUnsupported) for what is no stack of equal attention layers (encoder with decoder, convolutions, states).
ModelShape read_model_shape(const nlohmann::json& config, const std::string& name);

// Parameters of the whole model, by what they belong to. A tied head is counted once, as the embedding.
struct ParameterCounts {
  int64_t embedding = 0, positions = 0, attention = 0, mlp = 0, norms = 0, head = 0;
  int64_t total() const { return embedding + positions + attention + mlp + norms + head; }
  int64_t active = 0;  // those that one token meets: less than the total in a mixture of experts
};
ParameterCounts count_parameters(const ModelShape& shape);

}  // namespace spyre::sizing
