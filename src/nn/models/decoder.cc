#include "nn/models/decoder.h"

#include <cmath>
#include <tuple>

#include "base/error.h"
#include "formats/bytes.h"
#include "nn/models/config_keys.h"

namespace spyre::nn {

GatedMLP::GatedMLP(const ModelBuildContext& context, const std::string& path) : Module("GatedMLP", path) {
  const formats::ModelConfig& c = context.config;
  gate_up_proj_ = child(context.layers.make<MergedColumnParallelLinear>(
      {.path = path + ".gate_up_proj",
       .in_features = c.hidden_size,
       .pieces = {{path + ".gate_proj", c.intermediate_size}, {path + ".up_proj", c.intermediate_size}},
       .bias = c.mlp_bias,
       .dtype = context.dtype}));
  act_ = child(context.layers.make<SiluAndMul>({.path = path + ".act_fn"}));
  down_proj_ = child(context.layers.make<RowParallelLinear>({.path = path + ".down_proj",
                                                             .in_features = c.intermediate_size,
                                                             .pieces = {{path + ".down_proj", c.hidden_size}},
                                                             .bias = c.mlp_bias,
                                                             .dtype = context.dtype}));
}

Value GatedMLP::forward(Tracer& t, Value x) const {
  return down_proj_->forward(t, act_->forward(t, gate_up_proj_->forward(t, x)));
}

SelfAttention::SelfAttention(const ModelBuildContext& context, const std::string& path, const RotaryEmbedding& rotary,
                             const Options& options)
    : Module("SelfAttention", path),
      heads_(context.config.num_attention_heads),
      kv_heads_(context.config.num_key_value_heads),
      head_size_(context.config.head_dim),
      rotary_(rotary) {
  const formats::ModelConfig& c = context.config;
  qkv_proj_ = child(context.layers.make<QKVParallelLinear>({.path = path + ".qkv_proj",
                                                            .in_features = c.hidden_size,
                                                            .pieces = {{path + ".q_proj", heads_ * head_size_},
                                                                       {path + ".k_proj", kv_heads_ * head_size_},
                                                                       {path + ".v_proj", kv_heads_ * head_size_}},
                                                            .bias = options.qkv_bias,
                                                            .dtype = context.dtype}));
  attn_ = child(context.layers.make<Attention>(
      {.path = path + ".attn",
       .heads = heads_,
       .kv_heads = kv_heads_,
       .head_size = head_size_,
       .scale = options.scale != 0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(head_size_)),
       .dtype = context.dtype}));
  o_proj_ = child(context.layers.make<RowParallelLinear>({.path = path + ".o_proj",
                                                          .in_features = heads_ * head_size_,
                                                          .pieces = {{path + ".o_proj", c.hidden_size}},
                                                          .bias = options.output_bias,
                                                          .dtype = context.dtype}));
}

Value SelfAttention::forward(Tracer& t, Value x, Value rotation) const {
  const Value qkv = qkv_proj_->forward(t, x);
  const int64_t q_size = heads_ * head_size_, kv_size = kv_heads_ * head_size_;
  const Value q = prepare_query(t, t.reshape(t.slice_last(qkv, 0, q_size), {-1, heads_, head_size_}));
  const Value k = prepare_key(t, t.reshape(t.slice_last(qkv, q_size, kv_size), {-1, kv_heads_, head_size_}));
  const Value v = t.reshape(t.slice_last(qkv, q_size + kv_size, kv_size), {-1, kv_heads_, head_size_});
  const Value out = attn_->forward(t, rotary_.apply(t, q, rotation), rotary_.apply(t, k, rotation), v);
  return o_proj_->forward(t, out);
}

DecoderLayer::DecoderLayer(std::string class_name, const ModelBuildContext& context, const std::string& path,
                           std::unique_ptr<SelfAttention> attention)
    : Module(std::move(class_name), path) {
  const formats::ModelConfig& c = context.config;
  const auto norm = [&](const char* name) {
    return context.layers.make<RMSNorm>({.path = path + name,
                                         .hidden_size = c.hidden_size,
                                         .eps = c.rms_norm_eps,
                                         .dtype = context.dtype,
                                         .wide_residual = context.wide_residual});
  };
  input_layernorm_ = child(norm(".input_layernorm"));
  self_attn_ = child(std::move(attention));
  post_attention_layernorm_ = child(norm(".post_attention_layernorm"));
  mlp_ = child(std::make_unique<GatedMLP>(context, path + ".mlp"));
}

std::pair<Value, Value> DecoderLayer::forward(Tracer& t, Value x, Value residual, Value rotation) const {
  std::tie(x, residual) = input_layernorm_->forward(t, x, residual);
  x = scale_branch(t, self_attn_->forward(t, x, rotation));
  std::tie(x, residual) = post_attention_layernorm_->forward(t, x, residual);
  return {scale_branch(t, mlp_->forward(t, x)), residual};
}

DecoderLM::DecoderLM(std::string class_name, const ModelBuildContext& context, const MakeLayer& make_layer,
                     double logits_scale)
    : CausalLM(std::move(class_name), ""),
      vocab_size_(context.config.vocab_size),
      hidden_size_(context.config.hidden_size) {
  const formats::ModelConfig& c = context.config;
  embed_tokens_ = child(context.layers.make<VocabParallelEmbedding>(
      {.path = "model.embed_tokens", .vocab_size = vocab_size_, .hidden_size = hidden_size_, .dtype = context.dtype}));
  rotary_ = child(
      context.layers.make<RotaryEmbedding>({.path = "model.rotary_emb",
                                            .head_size = c.head_dim,
                                            .max_positions = context.max_model_len,
                                            .rope = c.rope,
                                            .frequency_divisors = c.rope_freq_factors.value_or(std::vector<float>{}),
                                            .dtype = context.dtype}));
  auto layers = std::make_unique<ModuleList>("model.layers");
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    layers->append(make_layer(fmt::format("model.layers.{}", i), *rotary_));
  }
  layers_ = child(std::move(layers));
  norm_ = child(context.layers.make<RMSNorm>({.path = "model.norm",
                                              .hidden_size = hidden_size_,
                                              .eps = c.rms_norm_eps,
                                              .dtype = context.dtype,
                                              .wide_residual = context.wide_residual}));
  lm_head_ =
      child(context.layers.make<ParallelLMHead>({.path = "lm_head",
                                                 .vocab_size = vocab_size_,
                                                 .hidden_size = hidden_size_,
                                                 .tied_to = c.tie_word_embeddings ? embed_tokens_.get() : nullptr,
                                                 .dtype = context.dtype}));
  logits_processor_ = child(context.layers.make<LogitsProcessor>({.path = "logits_processor", .scale = logits_scale}));
}

Value DecoderLM::forward(Tracer& t) const {
  Value x = embed(t);
  const Value rotation = rotary_->gather(t, t.positions());
  Value residual;
  for (size_t i = 0; i < layers_->size(); ++i) {
    const auto& layer = static_cast<const DecoderLayer&>((*layers_)[i]);
    const std::vector<Value> results = t.call(layer, [&]() -> std::vector<Value> {
      const auto [y, r] = layer.forward(t, x, residual, rotation);
      return {y, r};
    });
    x = results[0];
    residual = results[1];
  }
  return norm_->forward(t, x, residual).first;
}

Value DecoderLM::compute_logits(Tracer& t, Value hidden) const {
  return logits_processor_->forward(t, *lm_head_, hidden);
}

void check_decoder_config(const formats::ModelConfig& config, std::string_view architecture,
                          std::vector<std::string_view> handled) {
  if (config.hidden_act != "silu") {
    throw_error(ErrorCode::kUnsupported, "hidden_act '{}' is not built for {}; known: silu",
                formats::printable(config.hidden_act), architecture);
  }
  if (!config.rope_by_layer_type.empty()) {
    throw_error(ErrorCode::kUnsupported,
                "rope_parameters per kind of layer ('{}', ...) are not built for {}; known: one for all",
                formats::printable(config.rope_by_layer_type.front().first), architecture);
  }
  if (config.rope.partial_rotary_factor != 1.0) {
    throw_error(ErrorCode::kUnsupported, "partial_rotary_factor {} is not built for {}; known: 1.0",
                config.rope.partial_rotary_factor, architecture);
  }
  // Keys of related families that would change the maths are refused, each but with the values that leave it unchanged.
  for (const std::string_view key :
       {"architectures", "model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "rms_norm_eps", "vocab_size", "max_position_embeddings",
        "tie_word_embeddings", "hidden_act", "rope_theta", "rope_scaling", "rope_parameters"}) {
    handled.push_back(key);
  }
  refuse_unbuilt_keys(config.raw, architecture, handled);
}

void refuse_active_window(const ModelBuildContext& context, std::string_view architecture, int64_t window) {
  if (window == 0 || window >= context.max_model_len) return;
  throw_error(ErrorCode::kUnsupported,
              "sliding_window {} is smaller than max_model_len {}: sliding windows are not built for {}; give "
              "max_model_len {} or less",
              window, context.max_model_len, architecture, window);
}

}  // namespace spyre::nn
