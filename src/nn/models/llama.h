// Llama 2 and 3, SmolLM2 and everything else that says LlamaForCausalLM.
//
// A plain model over base layers: pre-norm blocks of grouped-query attention with rotary positions and a gated MLP. The
// residual stream is passed beside the block's result, so that each addition sits next to the norm that follows it.
#pragma once

#include <memory>

#include "nn/layers/activation.h"
#include "nn/layers/attention.h"
#include "nn/layers/embedding.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"
#include "nn/layers/rotary.h"
#include "nn/models/causal_lm.h"
#include "nn/registry.h"

namespace spyre::nn {

class LlamaMLP : public Module {
 public:
  LlamaMLP(const ModelBuildContext& context, const std::string& path);
  Value forward(Tracer& t, Value x) const;

 private:
  std::unique_ptr<MergedColumnParallelLinear> gate_up_proj_;
  std::unique_ptr<SiluAndMul> act_;
  std::unique_ptr<RowParallelLinear> down_proj_;
};

class LlamaAttention : public Module {
 public:
  LlamaAttention(const ModelBuildContext& context, const std::string& path, const RotaryEmbedding& rotary);
  Value forward(Tracer& t, Value x, Value rotation) const;

 private:
  int64_t heads_, kv_heads_, head_size_;
  const RotaryEmbedding& rotary_;
  std::unique_ptr<QKVParallelLinear> qkv_proj_;
  std::unique_ptr<Attention> attn_;
  std::unique_ptr<RowParallelLinear> o_proj_;
};

class LlamaDecoderLayer : public Module {
 public:
  LlamaDecoderLayer(const ModelBuildContext& context, const std::string& path, const RotaryEmbedding& rotary);
  // (result, residual); the first layer is given no residual.
  std::pair<Value, Value> forward(Tracer& t, Value x, Value residual, Value rotation) const;

 private:
  std::unique_ptr<RMSNorm> input_layernorm_;
  std::unique_ptr<LlamaAttention> self_attn_;
  std::unique_ptr<RMSNorm> post_attention_layernorm_;
  std::unique_ptr<LlamaMLP> mlp_;
};

class LlamaForCausalLM : public CausalLM {
 public:
  explicit LlamaForCausalLM(const ModelBuildContext& context);

  Value forward(Tracer& t) const override;
  Value compute_logits(Tracer& t, Value hidden) const override;
  int64_t vocab_size() const override { return vocab_size_; }
  int64_t hidden_size() const override { return hidden_size_; }

 private:
  int64_t vocab_size_, hidden_size_;
  std::unique_ptr<VocabParallelEmbedding> embed_tokens_;
  std::unique_ptr<RotaryEmbedding> rotary_;
  std::unique_ptr<ModuleList> layers_;
  std::unique_ptr<RMSNorm> norm_;
  std::unique_ptr<ParallelLMHead> lm_head_;
  std::unique_ptr<LogitsProcessor> logits_processor_;
};

// Throws kUnsupported naming the key when the config asks for maths that this class does not do.
SPYRE_API void check_llama_config(const formats::ModelConfig& config);

}  // namespace spyre::nn
