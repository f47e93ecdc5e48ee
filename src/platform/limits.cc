#include "platform/limits.h"

#include <algorithm>

#include "base/error.h"
#include "base/team.h"

namespace spyre::platform {
namespace {

constexpr int64_t kMaxBlockSize = 65536;
constexpr int64_t kDefaultMaxNumSeqs = 256;
constexpr int64_t kMaxMaxNumSeqs = 65536;
constexpr int64_t kDefaultStepTokens = 512;
constexpr int64_t kMaxStepTokens = int64_t{1} << 20;
constexpr int64_t kOriginalMaxModelLen = 2048;
constexpr int64_t kOriginalMaxNumSeqs = 4;
constexpr int64_t kAny = int64_t{1} << 62;

void check_range(const char* field, const std::optional<int64_t>& value, int64_t most) {
  if (value && (*value < 1 || *value > most)) {
    throw_error(ErrorCode::kInvalidArgument, "{} is {}, must be 1 to {}", field, *value, most);
  }
}

// How far a sequence may go: a file may give the context before its rope scaling stretches it (Qwen's YaRN).
int64_t most_positions(const formats::ModelConfig& model) {
  double stretched = 0;
  if (model.rope.type == "yarn") stretched = static_cast<double>(model.rope.original_max_position) * model.rope.factor;
  if (model.rope.type == "linear") stretched = static_cast<double>(model.max_position_embeddings) * model.rope.factor;
  return std::max(model.max_position_embeddings, static_cast<int64_t>(stretched));
}

}  // namespace

void complete_lengths(EngineConfig& config, const formats::ModelConfig& model, int64_t block_size) {
  const bool original = config.preset == Preset::kOriginal;
  check_range("max_model_len", config.max_model_len, kAny);
  if (config.max_model_len && *config.max_model_len > most_positions(model)) {
    throw_error(ErrorCode::kInvalidArgument, "max_model_len {} is beyond the model's {} positions",
                *config.max_model_len, most_positions(model));
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
  if (!config.block_size) config.block_size = block_size;
  check_range("block_size", config.block_size, kMaxBlockSize);
  check_range("num_kv_blocks", config.num_kv_blocks, kAny);
  check_range("kv_cache_bytes", config.kv_cache_bytes, kAny);
  if (config.memory_utilization && !(*config.memory_utilization > 0 && *config.memory_utilization <= 1)) {
    throw_error(ErrorCode::kInvalidArgument, "memory_utilization is {}, must be above 0 and at most 1",
                *config.memory_utilization);
  }
}

void refuse_parallel(const EngineConfig& config, std::string_view why) {
  auto refuse = [why](const char* field, int64_t value) {
    if (value != 1) throw_error(ErrorCode::kUnsupported, "{} is {}: {}, it must be 1", field, value, why);
  };
  refuse("data_parallel_size", config.data_parallel_size);
  refuse("pipeline_parallel_size", config.pipeline_parallel_size);
  refuse("tensor_parallel_size", config.tensor_parallel_size);
}

void check_threads(const EngineConfig& config) {
  if (config.threads < 0 || config.threads > ThreadTeam::kMaxSize) {
    throw_error(ErrorCode::kInvalidArgument, "threads is {}, must be 0 (automatic) to {}", config.threads,
                ThreadTeam::kMaxSize);
  }
}

}  // namespace spyre::platform
