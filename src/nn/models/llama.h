// Llama 2 and 3, SmolLM2 and everything else that says LlamaForCausalLM: the parts of decoder.h as they are, with
// biases where the config asks for them.
#pragma once

#include "nn/models/decoder.h"

namespace spyre::nn {

class LlamaForCausalLM : public DecoderLM {
 public:
  explicit LlamaForCausalLM(const ModelBuildContext& context);
};

// Throws kUnsupported naming the key when the config asks for maths that this class does not do.
SPYRE_API void check_llama_config(const formats::ModelConfig& config);

}  // namespace spyre::nn
