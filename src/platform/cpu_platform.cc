#include "platform/cpu_platform.h"

#include <algorithm>

#include "base/dot_orders.h"
#include "base/error.h"
#include "base/log.h"
#include "platform/cpu_runner.h"

namespace spyre::platform {
namespace {

constexpr int64_t kDefaultBlockSize = 16;
constexpr int64_t kMaxBlockSize = 65536;
constexpr int64_t kDefaultMaxNumSeqs = 16;
constexpr int64_t kMaxMaxNumSeqs = 65536;
constexpr int64_t kDefaultStepTokens = 512;
constexpr int64_t kMaxStepTokens = int64_t{1} << 20;
constexpr int64_t kOriginalMaxModelLen = 2048;
constexpr int64_t kOriginalMaxNumSeqs = 4;

void check_range(const char* field, const std::optional<int64_t>& value, int64_t most) {
  if (value && (*value < 1 || *value > most)) {
    throw_error(ErrorCode::kInvalidArgument, "{} is {}, must be 1 to {}", field, *value, most);
  }
}

void check_dtype(EngineConfig& config) {
  if (!config.dtype) config.dtype = DType::kF32;
  if (*config.dtype != DType::kF32 && !is_16bit_float(*config.dtype)) {
    throw_error(ErrorCode::kInvalidArgument, "dtype {} is not one that the cpu platform runs: f32, f16, bf16",
                to_string(*config.dtype));
  }
}

void complete_lengths(EngineConfig& config, const formats::ModelConfig& model) {
  constexpr int64_t kAny = int64_t{1} << 62;
  const bool original = config.preset == Preset::kOriginal;
  check_range("max_model_len", config.max_model_len, kAny);
  if (config.max_model_len && *config.max_model_len > model.max_position_embeddings) {
    throw_error(ErrorCode::kInvalidArgument, "max_model_len {} is beyond the model's {} positions",
                *config.max_model_len, model.max_position_embeddings);
  }
  if (!config.max_model_len) {
    const int64_t derived = model.max_position_embeddings;
    config.max_model_len = original ? std::min(derived, kOriginalMaxModelLen) : derived;
  }
  if (!config.max_num_seqs) config.max_num_seqs = original ? kOriginalMaxNumSeqs : kDefaultMaxNumSeqs;
  check_range("max_num_seqs", config.max_num_seqs, kMaxMaxNumSeqs);
  if (!config.max_num_batched_tokens) {
    config.max_num_batched_tokens = std::max(std::min(kDefaultStepTokens, *config.max_model_len), *config.max_num_seqs);
  }
  check_range("max_num_batched_tokens", config.max_num_batched_tokens, kMaxStepTokens);
  if (!config.block_size) config.block_size = kDefaultBlockSize;
  check_range("block_size", config.block_size, kMaxBlockSize);
  check_range("num_kv_blocks", config.num_kv_blocks, kAny);
  check_range("kv_cache_bytes", config.kv_cache_bytes, kAny);
}

void refuse_parallel(const EngineConfig& config) {
  auto refuse = [](const char* field, int64_t value) {
    if (value != 1) {
      throw_error(ErrorCode::kUnsupported, "{} is {}: the cpu platform is one interpreter, it must be 1", field, value);
    }
  };
  refuse("data_parallel_size", config.data_parallel_size);
  refuse("pipeline_parallel_size", config.pipeline_parallel_size);
  refuse("tensor_parallel_size", config.tensor_parallel_size);
}

}  // namespace

void CpuPlatform::check_and_update_config(EngineConfig& config, const formats::ModelConfig& model) const {
  refuse_parallel(config);
  check_dtype(config);
  complete_lengths(config, model);
  parse_order_choice(config.order);
  if (config.threads < 0 || config.threads > 1024) {
    throw_error(ErrorCode::kInvalidArgument, "threads is {}, must be 0 (automatic) to 1024", config.threads);
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
