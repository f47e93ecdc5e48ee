// The platform `null`: compiles, registers, and answers every call with Error(kUnsupported, "null platform: <call> is
// unimplemented"). It is the skeleton to grow a new platform from, and the conformance suite runs on it.
//
// To grow one:
//   1. Copy null_platform.{h,cc} to a directory of your own and give the class and name() your name.
//   2. check_and_update_config: fill in what the user left open (dtype, lengths, block size), refuse what your device
//      cannot do by field and number. It must be idempotent.
//   3. create_model_runner: build_model(*this, ...) gives the module tree; trace it with nn::Tracer and run what comes
//      out. cpu_runner.cc is the shortest honest runner: weights through nn::load_weights, one trace per number of
//      tokens, KV pages per attention layer.
//   4. Where your device needs a layer in another form, derive from the base layer and register it in register_layers.
//   5. Add an INSTANTIATE line for platform/testing/conformance.h to a test of yours; list what you do not support with
//      its reason, and strike lines out as they begin to pass: the suite tells you when one is stale.
//   6. As a plugin: export spyre_platform_plugin() and write a manifest (platform/plugin.h).
#pragma once

#include "platform/platform.h"

namespace spyre::platform {

class SPYRE_API NullPlatform final : public Platform {
 public:
  std::string name() const override { return "null"; }
  std::string description() const override { return "skeleton of a platform: everything is unimplemented"; }
  void check_and_update_config(EngineConfig& config, const formats::ModelConfig& model) const override;
  std::unique_ptr<runner::ModelRunner> create_model_runner(
      const EngineConfig& config, std::shared_ptr<const formats::Checkpoint> checkpoint) const override;
};

class SPYRE_API NullModelRunner final : public runner::ModelRunner {
 public:
  void load_model(const std::function<void(const runner::LoadProgress&)>& progress) override;
  int64_t vocab_size() const override;
  runner::KvCacheSpec kv_cache_spec() const override;
  void initialize_kv_cache(int64_t num_blocks) override;
  runner::WarmUpReport warm_up() override;
  void forward(const runner::ForwardBatch& batch, runner::Logits& logits) override;
  void copy_block(int32_t from, int32_t to) override;
  void zero_block(int32_t block) override;
  nlohmann::json report(const std::string& topic) const override;
};

}  // namespace spyre::platform
