#include "plugins/spyre/compiler/account_work.h"

#include "graph/op_def.h"
#include "plugins/spyre/device/core_map.h"

namespace spyre::compiler {

using device::BufferHome;
using device::CardBuffer;
using device::CardPlan;
using device::DeviceOp;
using device::OpWork;
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

// The buffer that the operator of this operation writes: the next result in the sequence.
const CardBuffer& result_of(const CardPlan& plan, size_t index) {
  while (plan.ops[index].outputs.empty()) ++index;
  return plan.buffers[plan.ops[index].outputs[0]];
}

void add_matmul(const CardPlan& plan, const DeviceOp& op, OpWork& work) {
  const CardBuffer &x = plan.buffers[op.inputs[0]], &out = plan.buffers[op.outputs[0]];
  work.macs = x.spec.axes.back().card();
  int64_t rows = 1;
  for (size_t d = 0; d < out.spec.axes.size(); ++d) {
    work.macs *= out.spec.axes[d].card();
    if (d + 1 < out.spec.axes.size()) rows *= out.spec.axes[d].card();
  }
  const int64_t reduced = op.splits[op.reduced_dim];
  work.rows_per_core = rows / (work.cores / op.splits.back() / reduced);
  work.split_reduction = reduced > 1;
}

}  // namespace

OpWork work_of(const graph::Graph& graph, const CardPlan& plan, size_t index) {
  const DeviceOp& op = plan.ops[index];
  OpWork work{.cores = device::core_count(op.splits), .restickify = op.name == "restickify"};
  const graph::Op* source = op.graph_op < 0 || work.restickify ? nullptr : &graph.ops[op.graph_op];
  const OpFamily family = source == nullptr ? OpFamily::kView : source->def->family;
  for (size_t i = 0; i < op.inputs.size() && (source == nullptr || is_first(plan, index)); ++i) {
    const bool table = family == OpFamily::kGather && i == 0;
    work.read_bytes += bytes(plan, table ? op.outputs[0] : op.inputs[i]);
  }
  for (const int32_t b : op.outputs) work.write_bytes += bytes(plan, b);
  if (source == nullptr) return work;
  if (source->name() == "kv_store") work.write_bytes = 2 * bytes(plan, op.inputs[1]);
  if (family == OpFamily::kMatmul) {
    add_matmul(plan, op, work);
  } else if (family != OpFamily::kCall) {
    const CardBuffer& worked_on = family == OpFamily::kReduce ? plan.buffers[op.inputs[0]] : result_of(plan, index);
    work.elements = worked_on.spec.layout.device_elements();
  }
  return work;
}

int64_t account_work(CardState& state) {
  CardPlan& plan = state.plan;
  plan.estimated_ns = device::measured_costs().launch_ns.value;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const OpWork work = work_of(state.graph, plan, i);
    DeviceOp& op = plan.ops[i];
    op.macs = work.macs;
    op.read_bytes = work.read_bytes;
    op.write_bytes = work.write_bytes;
    op.estimated_ns = device::estimate_ns(device::measured_costs(), work);
    plan.estimated_ns += op.estimated_ns;
  }
  return static_cast<int64_t>(plan.ops.size());
}

}  // namespace spyre::compiler
