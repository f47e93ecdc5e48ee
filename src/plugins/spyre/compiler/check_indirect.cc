#include "plugins/spyre/compiler/check_indirect.h"

#include <string_view>

namespace spyre::compiler {

using device::CardBuffer;
using device::DeviceOp;
using device::Rule;

namespace {

void check_index(CardState& state, const DeviceOp& op, int32_t index) {
  const CardBuffer& b = state.plan.buffers[index];
  const bool given = b.home == device::BufferHome::kInput || b.home == device::BufferHome::kParameter;
  require_rule(state.log, Rule::kGatherIndex, given && !b.view && b.spec.dtype == DType::kI32, [&] {
    return fmt::format("{} reads its index from {}%{}", describe(state.graph, state.graph.ops[op.graph_op]),
                       b.view ? "a view of " : "", state.graph.value(b.value).name);
  });
}

}  // namespace

int64_t check_indirect(CardState& state) {
  int64_t found = 0;
  for (const DeviceOp& op : state.plan.ops) {
    if (op.name == "gather") {
      const CardBuffer& table = state.plan.buffers[op.inputs[0]];
      require_rule(state.log, Rule::kGatherOnStick, table.placement.stick_dim != 0, [&] {
        return fmt::format("{} looks up the stick dimension of %{}",
                           describe(state.graph, state.graph.ops[op.graph_op]), state.graph.value(table.value).name);
      });
      check_index(state, op, op.inputs[1]);
    } else if (op.name == "kv_store") {
      check_index(state, op, op.inputs[3]);
    } else {
      continue;
    }
    ++found;
  }
  return found;
}

}  // namespace spyre::compiler
