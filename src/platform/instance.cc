#include "platform/instance.h"

#include "base/error.h"
#include "base/log.h"

namespace spyre::platform {

int64_t count_kv_blocks(const EngineConfig& config, const runner::KvCacheSpec& spec) {
  SPYRE_CHECK(config.max_model_len && spec.block_size > 0 && spec.bytes_per_block > 0);
  const int64_t for_one = (*config.max_model_len + spec.block_size - 1) / spec.block_size;
  if (config.num_kv_blocks) {
    if (*config.num_kv_blocks < 2) {
      throw_error(ErrorCode::kInvalidArgument,
                  "num_kv_blocks is {}, must be at least 2: block 0 is the null block and holds no tokens",
                  *config.num_kv_blocks);
    }
    return *config.num_kv_blocks;
  }
  if (!config.kv_cache_bytes) return for_one + 1;
  const int64_t blocks = *config.kv_cache_bytes / spec.bytes_per_block;
  if (blocks < for_one + 1) {
    throw_error(ErrorCode::kResourceExhausted,
                "kv_cache_bytes {} / {} bytes per block = {} blocks; a sequence of max_model_len {} needs {} blocks of "
                "{} tokens and the null block: give at least {} bytes or a smaller max_model_len",
                *config.kv_cache_bytes, spec.bytes_per_block, blocks, *config.max_model_len, for_one, spec.block_size,
                (for_one + 1) * spec.bytes_per_block);
  }
  return blocks;
}

Instance make_instance(const Platform& platform, EngineConfig config, const Progress& progress) {
  Instance instance;
  instance.checkpoint = formats::Checkpoint::open(config.model);
  platform.check_and_update_config(config, instance.checkpoint->config());
  if (!config.max_model_len || !config.max_num_batched_tokens || !config.max_num_seqs) {
    throw_error(ErrorCode::kInternal, "platform {} left a limit of the config open", platform.name());
  }
  const runner::WorkerConfig limits{.max_model_len = *config.max_model_len,
                                    .max_num_batched_tokens = *config.max_num_batched_tokens,
                                    .max_num_seqs = *config.max_num_seqs};
  instance.worker = std::make_unique<runner::Worker>(platform.create_model_runner(config, instance.checkpoint), limits);
  instance.worker->load_model(progress);
  const runner::KvCacheSpec spec = instance.worker->kv_cache_spec();
  instance.num_kv_blocks = count_kv_blocks(config, spec);
  instance.worker->initialize_kv_cache(instance.num_kv_blocks);  // refuses what memory cannot hold
  log().info("KV cache: {} blocks of {} tokens, {} bytes each = {} bytes", instance.num_kv_blocks, spec.block_size,
             spec.bytes_per_block, instance.num_kv_blocks * spec.bytes_per_block);
  instance.warm_up = instance.worker->warm_up();
  instance.config = std::move(config);
  return instance;
}

}  // namespace spyre::platform
