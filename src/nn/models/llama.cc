#include "nn/models/llama.h"

namespace spyre::nn {
namespace {

constexpr std::string_view kArchitecture = "LlamaForCausalLM";

const ModelBuildContext& checked(const ModelBuildContext& context) {
  check_llama_config(context.config);
  return context;
}

}  // namespace

LlamaForCausalLM::LlamaForCausalLM(const ModelBuildContext& context)
    : DecoderLM(std::string(kArchitecture), checked(context),
                [&](const std::string& path, const RotaryEmbedding& rotary) {
                  const bool bias = context.config.attention_bias;
                  return std::make_unique<DecoderLayer>(
                      "LlamaDecoderLayer", context, path,
                      std::make_unique<SelfAttention>(context, path + ".self_attn", rotary,
                                                      SelfAttention::Options{.qkv_bias = bias, .output_bias = bias}));
                }) {}

void check_llama_config(const formats::ModelConfig& config) {
  check_decoder_config(config, kArchitecture, {"attention_bias", "mlp_bias"});
}

}  // namespace spyre::nn
