#include "nn/models/mistral.h"

#include "formats/config_reader.h"

namespace spyre::nn {
namespace {

constexpr std::string_view kArchitecture = "MistralForCausalLM";

// A file without the key means Hugging Face's default, 4096; null means none.
int64_t sliding_window(const formats::ModelConfig& config) {
  if (!config.raw.contains("sliding_window")) return 4096;
  return formats::ConfigReader(config.raw, "config").integer("sliding_window", 1, int64_t{1} << 40).value_or(0);
}

const ModelBuildContext& checked(const ModelBuildContext& context) {
  check_decoder_config(context.config, kArchitecture, {"sliding_window"});
  refuse_active_window(context, kArchitecture, sliding_window(context.config));
  return context;
}

}  // namespace

MistralForCausalLM::MistralForCausalLM(const ModelBuildContext& context)
    : DecoderLM(std::string(kArchitecture), checked(context),
                [&](const std::string& path, const RotaryEmbedding& rotary) {
                  return std::make_unique<DecoderLayer>(
                      "MistralDecoderLayer", context, path,
                      std::make_unique<SelfAttention>(context, path + ".self_attn", rotary, SelfAttention::Options{}));
                }) {}

}  // namespace spyre::nn
