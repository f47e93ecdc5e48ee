#include "nn/models/qwen.h"

#include "base/error.h"
#include "formats/config_reader.h"

namespace spyre::nn {
namespace {

constexpr std::string_view kQwen2 = "Qwen2ForCausalLM", kQwen3 = "Qwen3ForCausalLM";

// 0 when no layer slides. The defaults are Hugging Face's.
int64_t sliding_window(const formats::ModelConfig& config) {
  const formats::ConfigReader in(config.raw, "config");
  if (!in.boolean("use_sliding_window").value_or(false)) return 0;
  const int64_t full_layers = in.integer("max_window_layers", 0, int64_t{1} << 40).value_or(28);
  if (full_layers >= config.num_hidden_layers) return 0;
  const bool given = config.raw.contains("sliding_window");
  return in.integer("sliding_window", 1, int64_t{1} << 40).value_or(given ? 0 : 4096);
}

const ModelBuildContext& checked(const ModelBuildContext& context, std::string_view architecture,
                                 std::vector<std::string_view> handled) {
  for (const std::string_view key : {"sliding_window", "use_sliding_window", "max_window_layers"})
    handled.push_back(key);
  check_decoder_config(context.config, architecture, std::move(handled));
  refuse_active_window(context, architecture, sliding_window(context.config));
  return context;
}

const ModelBuildContext& checked_qwen3(const ModelBuildContext& context) {
  // Hugging Face's default is 128 whatever the hidden size; every published file says it.
  (void)formats::ConfigReader(context.config.raw, "config").required_integer("head_dim", 1, 1024);
  return checked(context, kQwen3, {"attention_bias"});
}

}  // namespace

Qwen2ForCausalLM::Qwen2ForCausalLM(const ModelBuildContext& context)
    : DecoderLM(std::string(kQwen2), checked(context, kQwen2, {}),
                [&](const std::string& path, const RotaryEmbedding& rotary) {
                  return std::make_unique<DecoderLayer>(
                      "Qwen2DecoderLayer", context, path,
                      std::make_unique<SelfAttention>(context, path + ".self_attn", rotary,
                                                      SelfAttention::Options{.qkv_bias = true}));
                }) {}

Qwen3Attention::Qwen3Attention(const ModelBuildContext& context, const std::string& path, const RotaryEmbedding& rotary)
    : SelfAttention(context, path, rotary,
                    {.qkv_bias = context.config.attention_bias, .output_bias = context.config.attention_bias}) {
  const auto norm = [&](const char* name) {
    return context.layers.make<RMSNorm>({.path = path + name,
                                         .hidden_size = context.config.head_dim,
                                         .eps = context.config.rms_norm_eps,
                                         .dtype = context.dtype});
  };
  q_norm_ = child(norm(".q_norm"));
  k_norm_ = child(norm(".k_norm"));
}

Value Qwen3Attention::prepare_query(Tracer& t, Value q) const {
  return q_norm_->forward(t, q);
}

Value Qwen3Attention::prepare_key(Tracer& t, Value k) const {
  return k_norm_->forward(t, k);
}

Qwen3ForCausalLM::Qwen3ForCausalLM(const ModelBuildContext& context)
    : DecoderLM(std::string(kQwen3), checked_qwen3(context),
                [&](const std::string& path, const RotaryEmbedding& rotary) {
                  return std::make_unique<DecoderLayer>(
                      "Qwen3DecoderLayer", context, path,
                      std::make_unique<Qwen3Attention>(context, path + ".self_attn", rotary));
                }) {}

}  // namespace spyre::nn
