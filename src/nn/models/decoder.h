// What decoder-only models of the Llama kind have in common: pre-norm blocks of grouped-query attention with rotary
// positions and a gated MLP between a token embedding and a head. A family is written by composing these parts; where
// its maths differ it brings a part of its own (its file under models/ says which).
//
// The residual stream is passed beside the block's result, so that each addition sits next to the norm that follows it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/layers/activation.h"
#include "nn/layers/attention.h"
#include "nn/layers/embedding.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"
#include "nn/layers/rotary.h"
#include "nn/models/causal_lm.h"
#include "nn/registry.h"

namespace spyre::nn {

// down(silu(gate(x)) * up(x)). Biases as the config says (mlp_bias).
class GatedMLP : public Module {
 public:
  GatedMLP(const ModelBuildContext& context, const std::string& path);
  Value forward(Tracer& t, Value x) const;

 private:
  std::unique_ptr<MergedColumnParallelLinear> gate_up_proj_;
  std::unique_ptr<SiluAndMul> act_;
  std::unique_ptr<RowParallelLinear> down_proj_;
};

class SelfAttention : public Module {
 public:
  struct Options {
    bool qkv_bias = false, output_bias = false;
    double scale = 0;  // of q.k; 0: 1 / sqrt(head size)
  };
  SelfAttention(const ModelBuildContext& context, const std::string& path, const RotaryEmbedding& rotary,
                const Options& options);
  Value forward(Tracer& t, Value x, Value rotation) const;

 protected:
  // What happens to the heads [@T, heads, D] of q and of k before they are rotated: nothing here.
  virtual Value prepare_query(Tracer&, Value q) const { return q; }
  virtual Value prepare_key(Tracer&, Value k) const { return k; }

 private:
  int64_t heads_, kv_heads_, head_size_;
  const RotaryEmbedding& rotary_;
  std::unique_ptr<QKVParallelLinear> qkv_proj_;
  std::unique_ptr<Attention> attn_;
  std::unique_ptr<RowParallelLinear> o_proj_;
};

// x + attention(norm(x)), then x + mlp(norm(x)).
class DecoderLayer : public Module {
 public:
  DecoderLayer(std::string class_name, const ModelBuildContext& context, const std::string& path,
               std::unique_ptr<SelfAttention> attention);
  // (result, residual): what the next norm adds up. The first layer is given no residual.
  std::pair<Value, Value> forward(Tracer& t, Value x, Value residual, Value rotation) const;

 protected:
  // What happens to the result of attention and MLP before it joins the residual stream: nothing here.
  virtual Value scale_branch(Tracer&, Value x) const { return x; }

 private:
  std::unique_ptr<RMSNorm> input_layernorm_;
  std::unique_ptr<SelfAttention> self_attn_;
  std::unique_ptr<RMSNorm> post_attention_layernorm_;
  std::unique_ptr<GatedMLP> mlp_;
};

class DecoderLM : public CausalLM {
 public:
  using MakeLayer =
      std::function<std::unique_ptr<DecoderLayer>(const std::string& path, const RotaryEmbedding& rotary)>;
  DecoderLM(std::string class_name, const ModelBuildContext& context, const MakeLayer& make_layer,
            double logits_scale = 1.0);

  Value forward(Tracer& t) const override;
  Value compute_logits(Tracer& t, Value hidden) const override;
  int64_t vocab_size() const override { return vocab_size_; }
  int64_t hidden_size() const override { return hidden_size_; }

 protected:
  virtual Value embed(Tracer& t) const { return embed_tokens_->forward(t, t.token_ids()); }

 private:
  int64_t vocab_size_, hidden_size_;
  std::unique_ptr<VocabParallelEmbedding> embed_tokens_;
  std::unique_ptr<RotaryEmbedding> rotary_;
  std::unique_ptr<ModuleList> layers_;
  std::unique_ptr<RMSNorm> norm_;
  std::unique_ptr<ParallelLMHead> lm_head_;
  std::unique_ptr<LogitsProcessor> logits_processor_;
};

// Throws kUnsupported naming the key when the config asks for maths that the parts above do not do. Keys in |handled|
// are the family's own.
SPYRE_API void check_decoder_config(const formats::ModelConfig& config, std::string_view architecture,
                                    std::vector<std::string_view> handled);

// Throws kUnsupported when layers look back over a |window| that is smaller than what may be asked of the model:
// sliding windows are not built. A window of 0 is none.
SPYRE_API void refuse_active_window(const ModelBuildContext& context, std::string_view architecture, int64_t window);

}  // namespace spyre::nn
