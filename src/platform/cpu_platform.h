// The platform `cpu`: the reference interpreter runs the model as it is traced. It is the oracle that other platforms
// are compared with, not a way to serve: one thread, loops written to be read.
//
// dtype float32 (the default) keeps every value in fp32 whatever the checkpoint's type; float16 and bfloat16 run in
// exact mode, with every rounding and order of docs/numerics.md. Block-quantised weights are rounded to f16 in either.
// Any block size from 1 on.
#pragma once

#include "platform/platform.h"

namespace spyre::platform {

class SPYRE_API CpuPlatform final : public Platform {
 public:
  std::string name() const override { return "cpu"; }
  std::string description() const override { return "reference interpreter: slow, exact, for comparisons"; }
  void check_and_update_config(EngineConfig& config, const formats::ModelConfig& model) const override;
  std::unique_ptr<runner::ModelRunner> create_model_runner(
      const EngineConfig& config, std::shared_ptr<const formats::Checkpoint> checkpoint) const override;
};

}  // namespace spyre::platform
