// From a path to a worker that can run steps: what every front (generate, bench, inspect, tests) does first.
//
// An Instance is plain data; the platform that made it must outlive it. Single-threaded, as its worker is.
#pragma once

#include <functional>
#include <memory>

#include "base/export.h"
#include "formats/checkpoint.h"
#include "platform/platform.h"
#include "runner/forward.h"
#include "runner/worker.h"

namespace spyre::platform {

// A platform's worker for a model, loaded, with its KV cache allocated and warmed up.
struct Instance {
  EngineConfig config;  // completed by the platform
  std::shared_ptr<const formats::Checkpoint> checkpoint;
  std::unique_ptr<runner::Worker> worker;
  runner::WarmUpReport warm_up;
  int64_t num_kv_blocks = 0;  // the null block included
};

using Progress = std::function<void(const runner::LoadProgress&)>;

// Opens config.model, lets |platform| check and complete the config, loads the weights, sizes and makes the KV cache,
// and warms up. Throws what these steps throw; nothing is left behind.
SPYRE_API Instance make_instance(const Platform& platform, EngineConfig config, const Progress& progress = {});

// The number of KV blocks, block 0 (the null block, which holds no tokens) included:
//   num_kv_blocks                                      as given: at least 2
//   kv_cache_bytes / bytes_per_block                   at least one sequence of max_model_len, else kResourceExhausted
//   ceil(max_model_len / block_size) + 1               when neither is given
// Throws with the arithmetic. REQUIRES: config.max_model_len is filled in.
SPYRE_API int64_t count_kv_blocks(const EngineConfig& config, const runner::KvCacheSpec& spec);

}  // namespace spyre::platform
