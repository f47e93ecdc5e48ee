#include "platform/cpu_platform.h"

#include "base/dot_orders.h"
#include "base/error.h"
#include "base/log.h"
#include "platform/cpu_runner.h"
#include "platform/limits.h"

namespace spyre::platform {
namespace {

constexpr int64_t kDefaultBlockSize = 16;

void check_dtype(EngineConfig& config) {
  if (!config.dtype) config.dtype = DType::kF32;
  if (*config.dtype != DType::kF32 && !is_16bit_float(*config.dtype)) {
    throw_error(ErrorCode::kInvalidArgument, "dtype {} is not one that the cpu platform runs: f32, f16, bf16",
                to_string(*config.dtype));
  }
}

}  // namespace

void CpuPlatform::check_and_update_config(EngineConfig& config, const formats::ModelConfig& model) const {
  refuse_parallel(config, "the cpu platform is one interpreter");
  check_dtype(config);
  complete_lengths(config, model, kDefaultBlockSize);
  parse_order_choice(config.order);
  check_threads(config);
  if (config.numerics != "ieee") {
    throw_error(ErrorCode::kInvalidArgument, "numerics '{}' are a card's: use --platform spyre", config.numerics);
  }
  if (config.checked) log().info("checked mode has no effect on the cpu platform: it compiles nothing");
  if (config.token_buckets) log().info("token_buckets have no effect on the cpu platform: it runs any number of rows");
}

std::unique_ptr<runner::ModelRunner> CpuPlatform::create_model_runner(
    const EngineConfig& config, std::shared_ptr<const formats::Checkpoint> checkpoint) const {
  std::unique_ptr<nn::CausalLM> model = build_model(*this, config, checkpoint->config());
  return std::make_unique<CpuModelRunner>(config, std::move(checkpoint), std::move(model));
}

}  // namespace spyre::platform
