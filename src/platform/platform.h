// A platform is where a model runs. Built-in: `cpu` (the reference interpreter: the oracle) and `null` (a skeleton to
// start a new one from). Others come as plugins: a shared library with one entry point, found through a manifest.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/export.h"
#include "formats/checkpoint.h"
#include "nn/models/causal_lm.h"
#include "nn/registry.h"
#include "platform/config.h"
#include "runner/forward.h"

namespace spyre::platform {

struct SizingQuestion;

class SPYRE_API Platform {
 public:
  virtual ~Platform() = default;

  virtual std::string name() const = 0;
  virtual std::string description() const = 0;

  // Completes |config| for |model|, or throws Error naming the field and its value. Idempotent: the result passes again
  // unchanged.
  virtual void check_and_update_config(EngineConfig& config, const formats::ModelConfig& model) const = 0;

  // Replacements of base layers and adaptations of models; called once per model build.
  virtual void register_layers(nn::LayerRegistry& registry) const { (void)registry; }
  virtual void register_models(nn::ModelRegistry& registry) const { (void)registry; }

  // |config| has passed check_and_update_config. The runner keeps |checkpoint| alive as long as it needs it.
  virtual std::unique_ptr<runner::ModelRunner> create_model_runner(
      const EngineConfig& config, std::shared_ptr<const formats::Checkpoint> checkpoint) const = 0;

  // Whether a model of this configuration fits here, and how fast it would be (sizing.h); null when the platform cannot
  // tell. Throws Error(kInvalidArgument) for a question out of range, and what reading the configuration throws.
  // Inline, as every virtual function here is inline or pure: so whoever derives has the class's type information of
  // its own, and a plugin built against another core loads far enough to be asked for its build id.
  virtual nlohmann::json size_model(const SizingQuestion&) const { return nullptr; }
};

// |model| as |platform| builds it: registries filled, architecture resolved. Throws kFailedPrecondition for a config
// that has not passed check_and_update_config, kUnsupported for an architecture or a config key that is not built.
SPYRE_API std::unique_ptr<nn::CausalLM> build_model(const Platform& platform, const EngineConfig& config,
                                                    const formats::ModelConfig& model);

}  // namespace spyre::platform
