// Mistral: Llama without biases. Its sliding window (4096 tokens in v0.1; none since v0.2) is not built: a model whose
// window is smaller than max_model_len is refused.
#pragma once

#include "nn/models/decoder.h"

namespace spyre::nn {

class MistralForCausalLM : public DecoderLM {
 public:
  explicit MistralForCausalLM(const ModelBuildContext& context);
};

}  // namespace spyre::nn
