#include "plugins/spyre/device/op_work.h"

#include <algorithm>

#include "graph/op_def.h"
#include "plugins/spyre/device/core_map.h"

namespace spyre::device {
namespace {

using graph::OpFamily;

const graph::Op* graph_op_of(const graph::Graph& graph, const DeviceOp& op) {
  return op.graph_op < 0 ? nullptr : &graph.ops[op.graph_op];
}

// Rows are all of the result's dimensions but the last; |walks| says which split cuts each.
void add_matmul(const CardPlan& plan, const DeviceOp& op, OpWork& work) {
  const TensorSpec &out = plan.buffers[op.outputs[0]].spec, &weight = plan.buffers[op.inputs[1]].spec;
  const std::vector<int>& walked = op.walks.at(op.inputs.size());
  const size_t rank = out.axes.size();
  work.macs = op.macs;
  work.rows_per_core = 1;
  for (size_t d = 0; d + 1 < rank; ++d) {
    work.rows_per_core *= out.axes[d].card() / (walked[d] < 0 ? 1 : op.splits[walked[d]]);
  }
  work.split_reduction = op.reduced_dim >= 0 && op.splits[op.reduced_dim] > 1;
  if (rank <= 2) return;
  for (size_t d = 0; d + 2 < rank; ++d) work.batch *= out.axes[d].card();
  // Matrices are emitted batch outermost; a shared weight makes it a projection.
  work.form = weight.axes.size() > 2 ? MatmulForm::kFull : MatmulForm::kProjection;
}

void add_kind(const CardPlan& plan, const DeviceOp& op, const graph::Op& from, OpWork& work) {
  if (from.def->family == OpFamily::kReduce) {
    work.kind = op.name.ends_with("nonstick") ? WorkKind::kOuterReduction : WorkKind::kReduction;
    work.reduced_rows = plan.buffers[op.outputs[0]].spec.logical_elements();
  } else if (from.name() == "concat") {
    work.kind = WorkKind::kConcat;
  } else if (from.name() == "broadcast") {
    work.kind = WorkKind::kBroadcast;
  } else if (from.name() == "transpose") {
    work.kind = WorkKind::kTranspose;
  }
}

// The buffer that the operator of operation |index| writes: the next result in its sequence.
int32_t result_of(const CardPlan& plan, size_t index) {
  while (plan.ops[index].outputs.empty()) ++index;
  return plan.ops[index].outputs[0];
}

bool stands_alone(const DeviceOp& op) {
  return op.name == "restickify" || op.name == "attention" || op.name == "kv_store";
}

// Whether |next| goes on with something that |op| left inside the card.
bool hands_on(const CardPlan& plan, const DeviceOp& op, const DeviceOp& next) {
  if (stands_alone(op) || stands_alone(next)) return false;
  if (op.outputs.empty()) return op.graph_op == next.graph_op;
  const auto memory_of = [&](int32_t b) { return plan.buffers[b].view ? plan.buffers[b].base : b; };
  return std::any_of(op.outputs.begin(), op.outputs.end(), [&](int32_t out) {
    if (!plan.buffers[memory_of(out)].lx.resident()) return false;
    return std::any_of(next.inputs.begin(), next.inputs.end(),
                       [&](int32_t in) { return in >= 0 && memory_of(in) == memory_of(out); });
  });
}

}  // namespace

OpWork work_of(const graph::Graph& graph, const CardPlan& plan, size_t index) {
  const DeviceOp& op = plan.ops[index];
  OpWork work{.read_bytes = op.read_bytes, .write_bytes = op.write_bytes, .cores = core_count(op.splits)};
  work.scratch_bytes = op.lx_bytes;
  for (const LxCopy& copy : plan.lx_copies) {
    if (copy.first == static_cast<int32_t>(index)) work.relayouts.push_back(copy.move);
  }
  if (op.name == "restickify") {
    work.kind = WorkKind::kRestickify;
    work.run_bytes = run_bytes(plan, op, op.inputs.size());
    return work;
  }
  const graph::Op* from = graph_op_of(graph, op);
  if (from == nullptr || from->def->family == OpFamily::kCall) return work;
  if (from->def->family == OpFamily::kMatmul) {
    add_matmul(plan, op, work);
    return work;
  }
  const int32_t worked_on = from->def->family == OpFamily::kReduce ? op.inputs[0] : result_of(plan, index);
  work.elements = plan.buffers[worked_on].spec.layout.device_elements();
  if (!op.outputs.empty()) add_kind(plan, op, *from, work);
  return work;
}

// From the stick outward: a dimension continues the run when it steps by what lies together so far; the one beyond a
// dimension of which a core has a part does not.
int64_t run_bytes(const CardPlan& plan, const DeviceOp& op, size_t operand) {
  const size_t inputs = op.inputs.size();
  const CardBuffer& b = plan.buffers[operand < inputs ? op.inputs[operand] : op.outputs[operand - inputs]];
  const Placement& at = b.placement;
  struct Dim {
    int64_t stride = 0, units = 1, split = 1;
  };
  std::vector<Dim> dims;
  for (size_t d = 0; d < b.spec.axes.size(); ++d) {
    const int64_t card = b.spec.axes[d].card(), unit = static_cast<int>(d) == at.stick_dim ? at.stick_elements : 1;
    const int walk = op.walks.at(operand)[d];
    const Dim dim{at.strides[d], (card + unit - 1) / unit, walk < 0 ? 1 : op.splits[walk]};
    if (dim.units > 1) dims.push_back(dim);
  }
  std::sort(dims.begin(), dims.end(), [](const Dim& x, const Dim& y) { return x.stride < y.stride; });
  int64_t run = at.stick_elements;
  for (const Dim& dim : dims) {
    if (dim.stride != run) break;
    run *= dim.units / dim.split;
  }
  return run * kStickBytes / at.stick_elements;
}

std::vector<Bundle> bundles_of(const graph::Graph& graph, const CardPlan& plan, const CostConfig& config) {
  const std::vector<DeviceOp>& ops = plan.ops;
  std::vector<Bundle> bundles;
  std::vector<OpWork> works;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (works.empty()) bundles.push_back({.first = static_cast<int32_t>(i), .end = 0, .time = {}});
    works.push_back(work_of(graph, plan, i));
    if (i + 1 < ops.size() && hands_on(plan, ops[i], ops[i + 1])) continue;
    bundles.back().end = static_cast<int32_t>(i) + 1;
    bundles.back().time = bundle_time(config, works);
    works.clear();
  }
  return bundles;
}

double program_ns(const graph::Graph& graph, const CardPlan& plan, const CostConfig& config) {
  double ns = config.launch_ns.value;
  for (const Bundle& bundle : bundles_of(graph, plan, config)) ns += bundle.time.total();
  return ns;
}

}  // namespace spyre::device
