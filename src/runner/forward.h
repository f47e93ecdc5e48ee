// The worker contract, part 2: what the worker asks of a platform. A ModelRunner owns the weights, the KV cache and the
// compiled programs of one model on one device; it knows nothing of requests, histories or sampling.
//
// Owned by the Worker. All calls come from one thread at a time. Order: load_model, kv_cache_spec,
// initialize_kv_cache, warm_up, then any number of forward.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/export.h"
#include "graph/attention_batch.h"

namespace spyre {
class ThreadTeam;
}

namespace spyre {
class TraceRecorder;
}

namespace spyre::runner {

// One step, flattened: sequences one after the other, each with its scheduled tokens in order. Spans are the worker's
// and live until forward() returns.
struct ForwardBatch {
  std::span<const int32_t> token_ids;  // [tokens]
  std::span<const int32_t> positions;  // [tokens]: position in its sequence
  std::span<const int32_t> slots;      // [tokens]: block * block_size + offset in the KV cache
  graph::AttentionBatch attention;
  std::span<const int32_t> logits_rows;  // ascending indices of the tokens whose logits are wanted
};

// Logits of a step, row-major fp32 [logits_rows][vocab]. Owned by the worker, reused from step to step.
struct Logits {
  std::vector<float> values;
  int64_t vocab_size = 0;
  std::span<const float> row(int64_t i) const {
    return {values.data() + i * vocab_size, static_cast<size_t>(vocab_size)};
  }
  // What went wrong with a token's row, if anything: (index into token_ids, message naming the layer).
  std::vector<std::pair<int64_t, std::string>> row_errors;
};

struct KvCacheSpec {
  int64_t block_size = 0;       // tokens per block
  int64_t bytes_per_block = 0;  // K and V of all layers
  int64_t num_groups = 1;
};

struct WarmUpReport {
  int64_t programs_compiled = 0;  // distinct artifacts
  int64_t variants_recorded = 0;  // attention variants that steps may land on
  double compile_seconds = 0, execute_seconds = 0;
};

struct LoadProgress {
  int64_t bytes_done = 0, bytes_total = 0;
};

// What a layer tap is shown: one output of one block (or of what lies between blocks) for the tokens of one step, or
// the logits that the step gives. |values| are row-major fp32 [rows][width] and live until the call returns.
struct LayerOutput {
  std::string layer;   // a block's path ("model.layers.3"), "embedding" before the first, "after <path>", or "logits"
  int64_t output = 0;  // which of its outputs: a Llama block gives its result and the residual stream apart
  int64_t rows = 0, width = 0;
  std::span<const float> values;
};
using LayerTap = std::function<void(const LayerOutput&)>;

class SPYRE_API ModelRunner {
 public:
  virtual ~ModelRunner() = default;

  virtual void load_model(const std::function<void(const LoadProgress&)>& progress) = 0;
  virtual int64_t vocab_size() const = 0;
  virtual KvCacheSpec kv_cache_spec() const = 0;
  virtual void initialize_kv_cache(int64_t num_blocks) = 0;  // throws kResourceExhausted with the arithmetic
  virtual WarmUpReport warm_up() = 0;
  // Throws Error; after a throw the runner is still usable, but the KV content of the step's slots is undefined.
  virtual void forward(const ForwardBatch& batch, Logits& logits) = 0;
  virtual void copy_block(int32_t from, int32_t to) = 0;
  virtual void zero_block(int32_t block) = 0;
  // For comparisons and debugging: from now on each forward() shows |tap| what every layer gives, in order of
  // execution; an empty one ends it. A tapped step runs layer by layer: slower, the same bits. Throws
  // Error(kUnsupported) where it is not built, and that is what the base class does.
  virtual void set_layer_tap(LayerTap tap);
  // From now on forward() says what it does when (base/trace.h); null ends it. The recorder outlives its use. A traced
  // step may run program by program: slower, the same bits. The base class has nothing to tell.
  virtual void set_trace(TraceRecorder* trace) { (void)trace; }
  // The team that computes its steps, for the worker's own work between them; null when there is none. Lives as long as
  // the runner.
  virtual ThreadTeam* thread_team() { return nullptr; }
  // An account for inspect, bench and metrics: "artifacts", "buckets", "rules", "transfers", "memory", "all", ...
  // An unknown topic gives null.
  virtual nlohmann::json report(const std::string& topic) const = 0;
};

}  // namespace spyre::runner
