// The Spyre platform: config checks and defaults, layer replacements, and the model runner.
#pragma once

#include "platform/platform.h"

namespace spyre::plugin {

class SpyrePlatform final : public platform::Platform {
 public:
  std::string name() const override { return "spyre"; }
  std::string description() const override {
    return "software Spyre device: compiled programs of fixed shape over 128-byte sticks";
  }
  void check_and_update_config(platform::EngineConfig& config, const formats::ModelConfig& model) const override;
  void register_layers(nn::LayerRegistry& registry) const override;
  std::unique_ptr<runner::ModelRunner> create_model_runner(
      const platform::EngineConfig& config, std::shared_ptr<const formats::Checkpoint> checkpoint) const override;
  nlohmann::json size_model(const platform::SizingQuestion& question) const override;
};

}  // namespace spyre::plugin
