// The pool of a program: where its intermediate buffers lie in device memory. First fit over live ranges, in order of
// definition: simple, and within a few percent of the lower bound for chains of operators.
#pragma once

#include <cstdint>
#include <vector>

namespace spyre::compiler {

struct PoolRequest {
  int64_t bytes = 0;
  int32_t first = 0, last = 0;  // the operations that write it first and read it last, both included
};

struct PoolPlan {
  std::vector<int64_t> offsets;  // parallel to the requests, multiples of 128
  int64_t bytes = 0;
};

PoolPlan plan_pool(const std::vector<PoolRequest>& requests);

}  // namespace spyre::compiler
