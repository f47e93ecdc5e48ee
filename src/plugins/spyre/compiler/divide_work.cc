#include "plugins/spyre/compiler/divide_work.h"

#include <algorithm>
#include <numeric>

namespace spyre::compiler {

using device::DeviceOp;

namespace {

// The largest exact split that keeps what earlier phases cut, within the cores.
int64_t largest_split(const DeviceOp& op, size_t dim, int64_t cores) {
  const int64_t others = device::core_count(op.splits) / op.splits[dim];
  for (int64_t split = std::min(op.extents[dim], cores / others); split > op.splits[dim]; --split) {
    if (op.extents[dim] % split == 0) return split;
  }
  return op.splits[dim];
}

}  // namespace

void divide_largest(DeviceOp& op, int64_t cores) {
  std::vector<int> order(op.extents.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    if ((a == op.reduced_dim) != (b == op.reduced_dim)) return b == op.reduced_dim;
    return op.extents[a] > op.extents[b];
  });
  for (const int d : order) op.splits[d] = largest_split(op, d, cores);
}

int64_t divide_work(CardState& state) {
  int64_t parallel = 0;
  for (size_t i = 0; i < state.plan.ops.size(); ++i) {
    DeviceOp& op = state.plan.ops[i];
    if (i >= state.settled.size() || !state.settled[i]) divide_largest(op);
    parallel += device::core_count(op.splits) > 1;
  }
  return parallel;
}

}  // namespace spyre::compiler
