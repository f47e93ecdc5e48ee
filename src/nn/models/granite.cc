#include "nn/models/granite.h"

#include "formats/config_reader.h"

namespace spyre::nn {
namespace {

constexpr std::string_view kArchitecture = "GraniteForCausalLM";

const ModelBuildContext& checked(const ModelBuildContext& context) {
  check_decoder_config(context.config, kArchitecture,
                       {"attention_bias", "mlp_bias", "embedding_multiplier", "attention_multiplier",
                        "residual_multiplier", "logits_scaling"});
  return context;
}

Value scaled(Tracer& t, Value x, double factor) {
  return factor == 1.0 ? x : t.op("scale", {x}, {{"factor", factor}});
}

}  // namespace

GraniteMultipliers::GraniteMultipliers(const formats::ModelConfig& config) {
  const formats::ConfigReader in(config.raw, "config");
  const auto read = [&](const char* key) { return in.number(key, 1e-6, 1e6).value_or(1.0); };
  embedding = read("embedding_multiplier");
  attention = read("attention_multiplier");
  residual = read("residual_multiplier");
  logits = read("logits_scaling");
}

GraniteDecoderLayer::GraniteDecoderLayer(const ModelBuildContext& context, const std::string& path,
                                         std::unique_ptr<SelfAttention> attention, double residual_multiplier)
    : DecoderLayer("GraniteDecoderLayer", context, path, std::move(attention)),
      residual_multiplier_(residual_multiplier) {}

Value GraniteDecoderLayer::scale_branch(Tracer& t, Value x) const {
  return scaled(t, x, residual_multiplier_);
}

GraniteForCausalLM::GraniteForCausalLM(const ModelBuildContext& context)
    : GraniteForCausalLM(context, GraniteMultipliers(context.config)) {}

GraniteForCausalLM::GraniteForCausalLM(const ModelBuildContext& context, const GraniteMultipliers& multipliers)
    : DecoderLM(
          std::string(kArchitecture), checked(context),
          [&](const std::string& path, const RotaryEmbedding& rotary) {
            const bool bias = context.config.attention_bias;
            return std::make_unique<GraniteDecoderLayer>(
                context, path,
                std::make_unique<SelfAttention>(
                    context, path + ".self_attn", rotary,
                    SelfAttention::Options{.qkv_bias = bias, .output_bias = bias, .scale = multipliers.attention}),
                multipliers.residual);
          },
          1.0 / multipliers.logits),
      embedding_multiplier_(multipliers.embedding) {}

Value GraniteForCausalLM::embed(Tracer& t) const {
  return scaled(t, DecoderLM::embed(t), embedding_multiplier_);
}

}  // namespace spyre::nn
