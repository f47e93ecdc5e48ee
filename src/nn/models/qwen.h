// Qwen2 and Qwen2.5: Llama with biases on q, k and v alone. Qwen3: no biases, and every head of q and of k is normed
// before it is rotated (QK-norm).
//
// Layers from max_window_layers on may slide (use_sliding_window); such a window, when it is smaller than
// max_model_len, is refused: it is not built.
#pragma once

#include "nn/models/decoder.h"

namespace spyre::nn {

class Qwen2ForCausalLM : public DecoderLM {
 public:
  explicit Qwen2ForCausalLM(const ModelBuildContext& context);
};

class Qwen3Attention : public SelfAttention {
 public:
  Qwen3Attention(const ModelBuildContext& context, const std::string& path, const RotaryEmbedding& rotary);

 protected:
  Value prepare_query(Tracer& t, Value q) const override;
  Value prepare_key(Tracer& t, Value k) const override;

 private:
  std::unique_ptr<RMSNorm> q_norm_, k_norm_;  // over the head, one weight for all heads
};

class Qwen3ForCausalLM : public DecoderLM {
 public:
  explicit Qwen3ForCausalLM(const ModelBuildContext& context);
};

}  // namespace spyre::nn
