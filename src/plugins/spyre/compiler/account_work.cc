#include "plugins/spyre/compiler/account_work.h"

#include "graph/op_def.h"
#include "plugins/spyre/device/op_work.h"

namespace spyre::compiler {

using device::BufferHome;
using device::CardPlan;
using device::DeviceOp;
using graph::OpFamily;

namespace {

int64_t bytes(const CardPlan& plan, int32_t b) {
  return b < 0 || plan.buffers[b].home == BufferHome::kState ? 0 : plan.buffers[b].spec.card_bytes();
}

// The operation is the first of its operator's sequence.
bool is_first(const CardPlan& plan, size_t index) {
  return index == 0 || plan.ops[index - 1].graph_op != plan.ops[index].graph_op ||
         plan.ops[index - 1].name == "restickify";
}

int64_t multiply_adds(const CardPlan& plan, const DeviceOp& op) {
  int64_t macs = plan.buffers[op.inputs[0]].spec.axes.back().card();
  for (const device::Axis& axis : plan.buffers[op.outputs[0]].spec.axes) macs *= axis.card();
  return macs;
}

void account(const graph::Graph& graph, CardPlan& plan, size_t index) {
  DeviceOp& op = plan.ops[index];
  const graph::Op* source = op.graph_op < 0 || op.name == "restickify" ? nullptr : &graph.ops[op.graph_op];
  const OpFamily family = source == nullptr ? OpFamily::kView : source->def->family;
  for (size_t i = 0; i < op.inputs.size() && (source == nullptr || is_first(plan, index)); ++i) {
    const bool table = family == OpFamily::kGather && i == 0;
    op.read_bytes += bytes(plan, table ? op.outputs[0] : op.inputs[i]);
  }
  for (const int32_t b : op.outputs) op.write_bytes += bytes(plan, b);
  if (source != nullptr && source->name() == "kv_store") op.write_bytes = 2 * bytes(plan, op.inputs[1]);
  if (family == OpFamily::kMatmul) op.macs = multiply_adds(plan, op);
}

}  // namespace

int64_t account_work(CardState& state) {
  CardPlan& plan = state.plan;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    account(state.graph, plan, i);
    plan.ops[i].estimated_ns = device::estimate_ns(device::measured_costs(), device::work_of(state.graph, plan, i));
  }
  plan.estimated_ns = device::program_ns(state.graph, plan, device::measured_costs());
  return static_cast<int64_t>(plan.ops.size());
}

}  // namespace spyre::compiler
