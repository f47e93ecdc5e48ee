#include "platform/instance.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "platform/memory.h"

namespace spyre::platform {

namespace {

constexpr int64_t kServingBytes = int64_t{4} << 30;  // of a default; vLLM's on CPUs is the same

double gib(int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 30);
}

std::string given_blocks(int64_t blocks, const runner::KvCacheSpec& spec) {
  return fmt::format("{} blocks of {} tokens x {} bytes = {:.2f} GiB", blocks, spec.block_size, spec.bytes_per_block,
                     static_cast<double>(blocks) * static_cast<double>(spec.bytes_per_block) / (1 << 30));
}

// |bytes| in whole blocks; |origin| says where they come from.
KvCacheSize from_bytes(const EngineConfig& config, const runner::KvCacheSpec& spec, int64_t for_one, int64_t bytes,
                       const std::string& origin) {
  const int64_t blocks = std::max<int64_t>(bytes, 0) / spec.bytes_per_block;
  if (blocks < for_one + 1) {
    throw_error(
        ErrorCode::kResourceExhausted,
        "the KV cache: {} / {} bytes per block = {} blocks; a sequence of max_model_len {} needs {} blocks of {} "
        "tokens and the null block: give at least {} bytes or a smaller max_model_len",
        origin, spec.bytes_per_block, blocks, *config.max_model_len, for_one, spec.block_size,
        (for_one + 1) * spec.bytes_per_block);
  }
  return {blocks, fmt::format("{} / {} bytes per block: {}", origin, spec.bytes_per_block, given_blocks(blocks, spec))};
}

KvCacheSize for_serving(const EngineConfig& config, const runner::KvCacheSpec& spec, int64_t for_one,
                        const MemoryRoom& room) {
  const int64_t half = room.available < 0 ? kServingBytes : room.available / 2;
  const int64_t most = std::max(std::min(kServingBytes, half) / spec.bytes_per_block, for_one + 1);
  const int64_t sequences = config.max_num_seqs.value_or(1);
  if (sequences <= (most - 1) / for_one) {
    const int64_t blocks = sequences * for_one + 1;
    return {blocks,
            fmt::format("{} sequences of {} tokens: {}", sequences, *config.max_model_len, given_blocks(blocks, spec))};
  }
  return {most,
          fmt::format("{} sequences of {} tokens would need {} blocks; by default it has at most {:.2f} GiB and half "
                      "of the memory that is available ({:.2f} GiB): {}",
                      sequences, *config.max_model_len, sequences * for_one + 1, gib(kServingBytes), gib(half),
                      given_blocks(most, spec))};
}

}  // namespace

MemoryRoom MemoryRoom::now() {
  return {.available = available_memory(), .used = used_memory()};
}

KvCacheSize size_kv_cache(const EngineConfig& config, const runner::KvCacheSpec& spec, const MemoryRoom& room) {
  SPYRE_CHECK(config.max_model_len && spec.block_size > 0 && spec.bytes_per_block > 0);
  const int64_t for_one = (*config.max_model_len + spec.block_size - 1) / spec.block_size;
  if (config.num_kv_blocks) {
    if (*config.num_kv_blocks < 2) {
      throw_error(ErrorCode::kInvalidArgument,
                  "num_kv_blocks is {}, must be at least 2: block 0 is the null block and holds no tokens",
                  *config.num_kv_blocks);
    }
    return {*config.num_kv_blocks, "as asked for: " + given_blocks(*config.num_kv_blocks, spec)};
  }
  if (config.kv_cache_bytes) {
    return from_bytes(config, spec, for_one, *config.kv_cache_bytes,
                      fmt::format("kv_cache_bytes {}", *config.kv_cache_bytes));
  }
  if (config.memory_utilization) {
    if (room.available < 0) {
      throw_error(ErrorCode::kFailedPrecondition,
                  "memory_utilization {}: how much memory there is cannot be read here; give kv_cache_bytes",
                  *config.memory_utilization);
    }
    const double all = static_cast<double>(room.available) + static_cast<double>(room.used);
    const auto bytes = static_cast<int64_t>(*config.memory_utilization * all) - room.used;
    return from_bytes(
        config, spec, for_one, bytes,
        fmt::format("{:.3g} of ({:.2f} GiB available + {:.2f} GiB held) - {:.2f} GiB held = {:.2f} GiB",
                    *config.memory_utilization, gib(room.available), gib(room.used), gib(room.used), gib(bytes)));
  }
  if (config.serving) return for_serving(config, spec, for_one, room);
  return {for_one + 1,
          fmt::format("one sequence of {} tokens: {}", *config.max_model_len, given_blocks(for_one + 1, spec))};
}

PreparedModel prepare_model(const Platform& platform, EngineConfig config) {
  PreparedModel model{.config = std::move(config), .checkpoint = nullptr};
  model.checkpoint = formats::Checkpoint::open(model.config.model);
  platform.check_and_update_config(model.config, model.checkpoint->config());
  if (!model.config.max_model_len || !model.config.max_num_batched_tokens || !model.config.max_num_seqs) {
    throw_error(ErrorCode::kInternal, "platform {} left a limit of the config open", platform.name());
  }
  return model;
}

std::unique_ptr<runner::Worker> make_worker(const Platform& platform, const PreparedModel& model) {
  const runner::WorkerConfig limits{.max_model_len = *model.config.max_model_len,
                                    .max_num_batched_tokens = *model.config.max_num_batched_tokens,
                                    .max_num_seqs = *model.config.max_num_seqs};
  return std::make_unique<runner::Worker>(platform.create_model_runner(model.config, model.checkpoint), limits);
}

Instance make_instance(const Platform& platform, EngineConfig config, const Progress& progress) {
  return make_instance(platform, prepare_model(platform, std::move(config)), progress);
}

Instance make_instance(const Platform& platform, PreparedModel model, const Progress& progress) {
  Instance instance;
  instance.worker = make_worker(platform, model);
  instance.config = std::move(model.config);
  instance.checkpoint = std::move(model.checkpoint);
  instance.worker->load_model(progress);
  const runner::KvCacheSpec spec = instance.worker->kv_cache_spec();
  KvCacheSize size = size_kv_cache(instance.config, spec);
  instance.num_kv_blocks = size.blocks;
  instance.kv_cache = std::move(size.arithmetic);
  instance.worker->initialize_kv_cache(instance.num_kv_blocks);  // refuses what memory cannot hold
  log().info("KV cache: {}", instance.kv_cache);
  instance.warm_up = instance.worker->warm_up();
  return instance;
}

}  // namespace spyre::platform
