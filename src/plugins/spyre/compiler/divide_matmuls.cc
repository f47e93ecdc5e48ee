#include "plugins/spyre/compiler/divide_matmuls.h"

#include <algorithm>

#include "plugins/spyre/device/core_map.h"
#include "plugins/spyre/device/cost.h"

namespace spyre::compiler {

using device::CardBuffer;
using device::CardPlan;
using device::DeviceOp;

namespace {

class Search {
 public:
  Search(const std::vector<int64_t>& extents, int64_t cores, const DivisionScore& score)
      : extents_(extents), cores_(cores), score_(score), splits_(extents.size(), 1) {
    try_all(0, 1);
  }
  std::vector<int64_t> best;

 private:
  // Every exact division of the dimensions from |d| on, where those before it take |taken| cores.
  void try_all(size_t d, int64_t taken) {
    if (d == splits_.size()) {
      const double cost = score_(splits_);
      if (best.empty() || cost < least_ || (cost == least_ && taken > most_)) {
        best = splits_;
        least_ = cost;
        most_ = taken;
      }
      return;
    }
    for (int64_t split = 1; split <= std::min(extents_[d], cores_ / taken); ++split) {
      if (extents_[d] % split != 0) continue;
      splits_[d] = split;
      try_all(d + 1, taken * split);
    }
    splits_[d] = 1;
  }

  const std::vector<int64_t>& extents_;
  const int64_t cores_;
  const DivisionScore& score_;
  std::vector<int64_t> splits_;
  double least_ = 0;
  int64_t most_ = 0;
};

// The planner's estimate of a matmul by its splits.
DivisionScore planner_score(const CardPlan& plan, const DeviceOp& op) {
  const CardBuffer &out = plan.buffers[op.outputs[0]], &x = plan.buffers[op.inputs[0]];
  device::MatmulDivision whole{.macs = x.spec.axes.back().card(),
                               .out_elements = out.spec.layout.device_elements(),
                               .x_bytes = x.spec.card_bytes(),
                               .w_bytes = plan.buffers[op.inputs[1]].spec.card_bytes(),
                               .out_bytes = out.spec.card_bytes(),
                               .batched = plan.buffers[op.inputs[1]].spec.axes.size() > 2};
  int64_t rows = 1;
  for (size_t d = 0; d < out.spec.axes.size(); ++d) {
    whole.macs *= out.spec.axes[d].card();
    if (d + 1 < out.spec.axes.size()) rows *= out.spec.axes[d].card();
  }
  return [whole, rows, &op](const std::vector<int64_t>& splits) {
    device::MatmulDivision d = whole;
    const int64_t generated = splits.back(), reduced = splits[op.reduced_dim];
    d.cores = d.w_fanout = device::core_count(splits);
    d.reduction_splits = reduced;
    d.rows_per_core = rows / (d.cores / generated / reduced);
    d.x_fanout = generated;
    for (const int walk : op.walks[1]) d.w_fanout /= splits[walk];
    return device::planner_ns(d);
  };
}

}  // namespace

std::vector<int64_t> cheapest_division(const std::vector<int64_t>& extents, int64_t cores, const DivisionScore& score) {
  return Search(extents, cores, score).best;
}

int64_t divide_matmuls(CardState& state) {
  int64_t divided = 0;
  state.settled.assign(state.plan.ops.size(), false);
  for (size_t i = 0; i < state.settled.size(); ++i) {
    DeviceOp& op = state.plan.ops[i];
    if (op.name != "batchmatmul" || device::core_count(op.splits) > 1) continue;
    op.splits = cheapest_division(op.extents, device::kCores, planner_score(state.plan, op));
    state.settled[i] = true;
    ++divided;
  }
  return divided;
}

}  // namespace spyre::compiler
