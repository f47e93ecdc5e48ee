// From a path to a worker that can run steps: what every front (generate, bench, inspect, tests) does first.
//
// An Instance is plain data; the platform that made it must outlive it. Single-threaded, as its worker is.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/export.h"
#include "formats/checkpoint.h"
#include "platform/platform.h"
#include "runner/forward.h"
#include "runner/worker.h"

namespace spyre::platform {

// A model that can be run: its files are checked, its config completed by the platform. No weights are read yet, and no
// device or thread is there.
struct PreparedModel {
  EngineConfig config;
  std::shared_ptr<const formats::Checkpoint> checkpoint;
};

// Opens config.model and lets |platform| check and complete the config. Throws what these throw.
SPYRE_API PreparedModel prepare_model(const Platform& platform, EngineConfig config);
// Its worker on the platform's device, still without weights and KV cache.
SPYRE_API std::unique_ptr<runner::Worker> make_worker(const Platform& platform, const PreparedModel& model);

// A platform's worker for a model, loaded, with its KV cache allocated and warmed up.
struct Instance {
  EngineConfig config;  // completed by the platform
  std::shared_ptr<const formats::Checkpoint> checkpoint;
  std::unique_ptr<runner::Worker> worker;
  runner::WarmUpReport warm_up;
  int64_t num_kv_blocks = 0;  // the null block included
  std::string kv_cache;       // its size with the arithmetic, one line
};

using Progress = std::function<void(const runner::LoadProgress&)>;

// prepare_model() and make_worker(), then loads the weights, sizes and makes the KV cache, and warms up. Throws what
// these steps throw; nothing is left behind.
SPYRE_API Instance make_instance(const Platform& platform, EngineConfig config, const Progress& progress = {});
// The rest of it, for who does something else with the prepared model meanwhile.
SPYRE_API Instance make_instance(const Platform& platform, PreparedModel model, const Progress& progress = {});

// What a KV cache may take, in bytes, once the weights are there: what the system still has for this process, and what
// the process holds. -1 = unknown.
struct MemoryRoom {
  int64_t available = -1, used = 0;
  SPYRE_API static MemoryRoom now();
};

struct KvCacheSize {
  int64_t blocks = 0;      // block 0, the null block, which holds no tokens, included
  std::string arithmetic;  // how it came about, one line
};

// One sequence of max_model_len takes N = ceil(max_model_len / block_size) blocks.
//   num_kv_blocks        as given: at least 2
//   kv_cache_bytes       / bytes per block
//   memory_utilization   (share x (available + used) - used) / bytes per block: the share is of what this process may
//                        hold in all, weights included; kFailedPrecondition when |room| is unknown
//   serving              max_num_seqs x N + 1, but at most 4 GiB and half of what is available
//   otherwise            N + 1
// By bytes it must hold N + 1, else kResourceExhausted. Throws with the arithmetic. REQUIRES: the limits of |config|
// are filled in.
SPYRE_API KvCacheSize size_kv_cache(const EngineConfig& config, const runner::KvCacheSpec& spec,
                                    const MemoryRoom& room = MemoryRoom::now());

}  // namespace spyre::platform
