// The checks of a step: what each scheduled request will be, worked out from the step and from what is known, without
// changing anything. Internal to the runner; InputBatch::apply is its only user.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runner/input_batch.h"
#include "runner/step.h"

namespace spyre::runner {

// Points into the step, which must outlive it.
struct PlannedRequest {
  RequestPtr known;                   // null under a first schedule
  const NewRequest* fresh = nullptr;  // exactly one of the two is set
  const CachedRequest* cached = nullptr;
  std::span<const int32_t> history;  // resent: all tokens; empty when not
  std::span<const int32_t> new_blocks;
  bool replaces_blocks = false;  // a first schedule or a resume
  int64_t computed = 0;
  int64_t scheduled = 0;

  int64_t end() const { return computed + scheduled; }
  int64_t kept_blocks() const { return replaces_blocks ? 0 : static_cast<int64_t>(known->blocks.size()); }
  int64_t num_blocks() const { return kept_blocks() + static_cast<int64_t>(new_blocks.size()); }
  int32_t block(int64_t i) const { return i < kept_blocks() ? known->blocks[i] : new_blocks[i - kept_blocks()]; }
};

// The scheduled requests in batch order. Throws Error(kInvalidArgument) naming the request and the numbers when
// anything in the step contradicts itself, |limits| or |requests|. |marks| is scratch space.
std::vector<PlannedRequest> plan_step(const Step& step, const InputBatchLimits& limits, const RequestMap& requests,
                                      BlockMarks& marks);

}  // namespace spyre::runner
