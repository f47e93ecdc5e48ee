#include "plugins/spyre/device/plan_calls.h"

#include <fmt/format.h>

#include "graph/op_def.h"

namespace spyre::device {
namespace {

CardOperand operand_of(const graph::Graph& graph, const CardPlan& plan, int32_t buffer, const std::vector<int>& walks) {
  const CardBuffer& b = plan.buffers[buffer];
  const int stick = b.placement.stick_dim;
  CardOperand operand{.name = "%" + graph.value(b.value).name,
                      .type = b.spec.layout.type,
                      .arrangement = b.placement.arrangement,
                      .walks = walks};
  // A dimension of one element lies in any stick.
  if (stick >= 0 && b.spec.axes[static_cast<size_t>(stick)].card() > 1) operand.stick = stick;
  operand.stick_offset = b.placement.offset % b.placement.stick_elements;
  return operand;
}

bool reduces_one_element(const CardPlan& plan, const DeviceOp& op, const graph::Op& from) {
  const CardBuffer& x = plan.buffers[op.inputs[0]];
  return x.spec.axes.at(static_cast<size_t>(from.int_attr("axis"))).card() == 1;
}

bool is_one_function(graph::OpFamily family) {
  return family == graph::OpFamily::kUnary || family == graph::OpFamily::kBinary ||
         family == graph::OpFamily::kReduce || family == graph::OpFamily::kMatmul;
}

}  // namespace

std::vector<CardCall> plan_calls(const graph::Graph& graph, const CardPlan& plan) {
  std::vector<CardCall> calls;
  for (const DeviceOp& op : plan.ops) {
    if (op.graph_op < 0 || op.name == "restickify" || op.inputs.empty() || op.outputs.empty()) continue;
    const graph::Op& from = graph.ops[op.graph_op];
    if (!is_one_function(from.def->family)) continue;
    if (from.def->family == graph::OpFamily::kReduce && reduces_one_element(plan, op, from)) continue;  // a copy
    CardCall call{.name = op.name, .what = fmt::format("{} %{}", from.name(), graph.value(from.outputs[0]).name)};
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      call.inputs.push_back(operand_of(graph, plan, op.inputs[i], op.walks.at(i)));
    }
    call.outputs.push_back(operand_of(graph, plan, op.outputs[0], op.walks.back()));
    if (from.def->family == graph::OpFamily::kMatmul) call.outputs[0].type = CardType::kDl16;  // and a cast behind it
    if (op.reduced_dim >= 0) call.reduced = {op.reduced_dim};
    for (const int64_t split : op.splits) call.cores *= static_cast<int>(split);
    calls.push_back(std::move(call));
  }
  return calls;
}

void check_plan_calls(const graph::Graph& graph, const CardPlan& plan) {
  for (const CardCall& call : plan_calls(graph, plan)) check_card_call(call);
}

}  // namespace spyre::device
