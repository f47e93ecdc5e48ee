// Granite 3: Llama with four multipliers (the maximal update parametrisation leaves them in the model):
//   embedding_multiplier   on the token embeddings
//   attention_multiplier   the scale of q.k itself, in the place of 1/sqrt(head size)
//   residual_multiplier    on what attention and MLP add to the residual stream
//   logits_scaling         divides the logits
#pragma once

#include "nn/models/decoder.h"

namespace spyre::nn {

// The multipliers of a config, Hugging Face's default (1) for those it does not name.
struct GraniteMultipliers {
  explicit GraniteMultipliers(const formats::ModelConfig& config);
  double embedding, attention, residual, logits;
};

class GraniteDecoderLayer : public DecoderLayer {
 public:
  GraniteDecoderLayer(const ModelBuildContext& context, const std::string& path,
                      std::unique_ptr<SelfAttention> attention, double residual_multiplier);

 protected:
  Value scale_branch(Tracer& t, Value x) const override;

 private:
  double residual_multiplier_;
};

class GraniteForCausalLM : public DecoderLM {
 public:
  explicit GraniteForCausalLM(const ModelBuildContext& context);

 protected:
  Value embed(Tracer& t) const override;

 private:
  GraniteForCausalLM(const ModelBuildContext& context, const GraniteMultipliers& multipliers);

  double embedding_multiplier_;
};

}  // namespace spyre::nn
