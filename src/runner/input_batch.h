// The worker's memory of requests: token histories, block tables and what is computed, updated from each Step, and the
// flattening of a step into a ForwardBatch.
//
// The scheduler never resends what was sampled, so the history here is the truth. A request stays known (tokens,
// blocks) while preempted and is forgotten only when finished. Single-threaded; owned by the Worker.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/export.h"
#include "runner/forward.h"
#include "runner/logits_edits.h"
#include "runner/step.h"

namespace spyre::runner {

struct PlannedRequest;  // step_plan.h

struct RequestState {
  RequestId id;
  std::vector<int32_t> tokens;  // prompt and generated
  int64_t prompt_length = 0;
  int64_t computed = 0;         // tokens whose K and V are in the cache
  std::vector<int32_t> blocks;  // KV group 0
  SamplingParams sampling;
  LogitsEdits edits;    // what |sampling| does to logits, given |tokens|
  int64_t draws = 0;    // random draws made: the sampler's counter
  int32_t pending = 0;  // tokens that outstanding tickets will draw
  // Not empty: why the request failed. It stays failed until it is finished: its later steps give the same error, and
  // its history is filled up so that a host which has scheduled ahead stays in step.
  std::string failure;

  int64_t output_length() const { return static_cast<int64_t>(tokens.size()) - prompt_length; }
  int64_t known() const { return static_cast<int64_t>(tokens.size()) + pending; }
};

// Shared: a ticket may outlive the request that it draws for (an abort between execute and sample).
using RequestPtr = std::shared_ptr<RequestState>;
using RequestMap = std::unordered_map<RequestId, RequestPtr>;

// What one scheduled request does in a step.
struct ScheduledRequest {
  RequestPtr state;
  int64_t first_token = 0;  // index of its first row in the flattened step
  int64_t tokens = 0;
  int64_t start = 0;        // position of its first row in the sequence
  bool samples = false;     // start + tokens reaches the last known token
  int64_t logits_row = -1;  // first of its rows in Logits, -1 when none
  int64_t logits_rows = 0;  // prompt rows that are scored, then the row to draw from when it samples

  int64_t scored_rows() const { return logits_rows - (samples ? 1 : 0); }
};

struct InputBatchLimits {
  int64_t block_size = 0;
  int64_t num_blocks = 0;
  int64_t max_model_len = 0;
  int64_t max_num_batched_tokens = 0;
  int64_t max_num_seqs = 0;
  int64_t vocab_size = 0;

  // Throws Error(kInvalidArgument) for a limit below 1 (num_blocks below 2: block 0 is the null block), and for more
  // slots than 32 bits number.
  SPYRE_API void check() const;
};

// A set of block ids that is emptied in O(1).
class BlockMarks {
 public:
  explicit BlockMarks(int64_t num_blocks) : marked_(num_blocks, 0) {}
  void clear() { ++epoch_; }
  bool insert(int32_t block) { return std::exchange(marked_[block], epoch_) != epoch_; }  // false: it was in already

 private:
  std::vector<uint64_t> marked_;
  uint64_t epoch_ = 1;
};

class SPYRE_API InputBatch {
 public:
  // Throws what limits.check() throws.
  explicit InputBatch(const InputBatchLimits& limits);

  // Checks every number of the step against what is known, then applies it: finished ids first, then new (or
  // V2-resumed) requests, then cached ones. A step that does not fit throws Error(kInvalidArgument) naming the request
  // and the numbers, with nothing of it applied.
  void apply(const Step& step);

  // The flattened step that apply() described. Valid until the next apply().
  const std::vector<ScheduledRequest>& scheduled() const { return scheduled_; }
  // True when the step reads tokens that an outstanding ticket has still to draw.
  bool waits_for_tokens() const;
  // REQUIRES: !waits_for_tokens(), and so does advance().
  ForwardBatch forward_batch();

  // After the forward pass: the scheduled tokens are computed.
  void advance();
  void append_token(RequestState& request, int32_t token);

  const RequestState* find(const RequestId& id) const;
  int64_t size() const { return static_cast<int64_t>(requests_.size()); }

 private:
  void commit(const PlannedRequest& planned);
  void flatten(const RequestPtr& state, int64_t tokens);

  InputBatchLimits limits_;
  RequestMap requests_;
  BlockMarks marks_;
  std::vector<ScheduledRequest> scheduled_;
  std::vector<int32_t> token_ids_, positions_, slots_, query_start_, seq_lens_, block_table_, logits_rows_;
};

}  // namespace spyre::runner
