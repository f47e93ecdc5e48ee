// The worker's memory of requests: token histories, block tables and what is computed, updated from each Step, and the
// flattening of a step into a ForwardBatch.
//
// The scheduler never resends what was sampled, so the history here is the truth. A request stays known (tokens,
// blocks) while preempted and is forgotten only when finished. Single-threaded; owned by the Worker.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/export.h"
#include "runner/forward.h"
#include "runner/step.h"

namespace spyre::runner {

struct RequestState {
  RequestId id;
  std::vector<int32_t> tokens;   // prompt and generated
  int64_t prompt_length = 0;
  int64_t computed = 0;          // tokens whose K and V are in the cache
  std::vector<int32_t> blocks;   // KV group 0
  SamplingParams sampling;
  int64_t draws = 0;             // random draws made: the sampler's counter

  int64_t output_length() const { return static_cast<int64_t>(tokens.size()) - prompt_length; }
};

// What one scheduled request does in a step.
struct ScheduledRequest {
  RequestState* state = nullptr;
  int64_t first_token = 0;       // index of its first row in the flattened step
  int64_t tokens = 0;
  bool samples = false;          // computed + scheduled reaches the last known token
  int64_t logits_row = -1;       // first of its rows in Logits, -1 when none
  int64_t logits_rows = 0;       // > 1 when prompt log-probs are wanted
};

struct InputBatchLimits {
  int64_t block_size = 0;
  int64_t num_blocks = 0;
  int64_t max_model_len = 0;
  int64_t max_num_batched_tokens = 0;
  int64_t max_num_seqs = 0;
  int64_t vocab_size = 0;
};

class SPYRE_API InputBatch {
 public:
  explicit InputBatch(const InputBatchLimits& limits);

  // Applies the step: finished ids first, then new (or V2-resumed) requests, then cached ones; then checks every
  // number of the step against what is known. A step that does not fit throws Error(kInvalidArgument) naming the
  // request and the numbers, with nothing of it applied.
  void apply(const Step& step);

  // The flattened step that apply() described. Valid until the next apply().
  const std::vector<ScheduledRequest>& scheduled() const { return scheduled_; }
  ForwardBatch forward_batch() const;

  // After the forward pass: the scheduled tokens are computed.
  void advance();
  void append_token(RequestState& request, int32_t token);

  const RequestState* find(const RequestId& id) const;
  int64_t size() const { return static_cast<int64_t>(requests_.size()); }

 private:
  InputBatchLimits limits_;
  std::unordered_map<RequestId, RequestState> requests_;
  std::vector<ScheduledRequest> scheduled_;
  std::vector<int32_t> token_ids_, positions_, slots_, query_start_, seq_lens_, block_table_, logits_rows_;
  int64_t max_blocks_ = 0;
};

}  // namespace spyre::runner
