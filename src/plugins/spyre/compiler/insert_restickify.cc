#include "plugins/spyre/compiler/insert_restickify.h"

#include <utility>
#include <vector>

#include "plugins/spyre/compiler/lower/iteration.h"

namespace spyre::compiler {

using device::CardBuffer;
using device::DeviceOp;

int64_t insert_restickify(CardState& state) {
  device::CardPlan& plan = state.plan;
  std::vector<bool> waiting(plan.buffers.size());
  int64_t missing = 0;
  for (size_t b = 0; b < waiting.size(); ++b) missing += waiting[b] = plan.buffers[b].relaid_from >= 0;
  if (missing == 0) return 0;
  std::vector<DeviceOp> ops;
  ops.reserve(plan.ops.size() + static_cast<size_t>(missing));
  for (DeviceOp& op : plan.ops) {
    for (const int32_t input : op.inputs) {
      if (input < 0) continue;
      const CardBuffer& read = plan.buffers[input];
      const int32_t b = read.view ? read.base : input;
      if (!waiting[b]) continue;
      waiting[b] = false;
      const CardBuffer& to = plan.buffers[b];
      DeviceOp moved{.name = "restickify", .graph_op = op.graph_op, .inputs = {to.relaid_from}, .outputs = {b}};
      set_iteration(moved, copy_iteration(plan.buffers[to.relaid_from], to));
      plan.restickified_bytes += to.spec.card_bytes();
      ops.push_back(std::move(moved));
    }
    ops.push_back(std::move(op));
  }
  plan.ops = std::move(ops);
  return missing;
}

}  // namespace spyre::compiler
