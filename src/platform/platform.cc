#include "platform/platform.h"

#include "base/error.h"

namespace spyre::platform {

std::unique_ptr<nn::CausalLM> build_model(const Platform& platform, const EngineConfig& config,
                                          const formats::ModelConfig& model) {
  if (!config.dtype || !config.max_model_len) {
    throw_error(ErrorCode::kFailedPrecondition,
                "build_model: {} of the config is not filled in; call check_and_update_config first",
                config.dtype ? "max_model_len" : "dtype");
  }
  nn::LayerRegistry layers;
  platform.register_layers(layers);
  nn::ModelRegistry models = nn::ModelRegistry::built_in();
  platform.register_models(models);
  return models.build({.config = model,
                       .layers = layers,
                       .dtype = *config.dtype,
                       .max_model_len = *config.max_model_len,
                       .wide_residual = config.preset != Preset::kOriginal});
}

}  // namespace spyre::platform
