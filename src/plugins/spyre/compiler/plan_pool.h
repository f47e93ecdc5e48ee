// Phase: the pool of a program, where its intermediate buffers lie in device memory. First fit over live ranges, in
// order of definition: simple, and within a few percent of the lower bound (the most bytes that are live at once) for
// chains of operators. The pool is one segment of the card's memory, of which 14 GiB are used at most (L-41).
#pragma once

#include <cstdint>
#include <vector>

#include "plugins/spyre/compiler/card_plan.h"

namespace spyre::compiler {

struct PoolRequest {
  int64_t bytes = 0;
  int32_t first = 0, last = 0;  // the operations that write it first and read it last, both included
};

struct PoolPlan {
  std::vector<int64_t> offsets;  // parallel to the requests, multiples of 128
  int64_t bytes = 0;
  int64_t lower_bound = 0;  // of bytes, whatever the order
};

PoolPlan plan_pool(const std::vector<PoolRequest>& requests);

// When each buffer of a plan is in use: the operations that touch it, or a view of it, first and last; -1 = none.
struct LiveRange {
  int32_t first = -1, last = -1;
};
std::vector<LiveRange> live_ranges(const device::CardPlan& plan);

// As a phase; the number of buffers placed.
int64_t plan_pool(CardState& state);

}  // namespace spyre::compiler
