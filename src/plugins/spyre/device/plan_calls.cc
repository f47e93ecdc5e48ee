#include "plugins/spyre/device/plan_calls.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "graph/op_def.h"

namespace spyre::device {

CardOperand operand_of(std::string name, const TensorSpec& spec, const Placement& placement, std::vector<int> walks) {
  const int stick = placement.stick_dim;
  CardOperand operand{.name = std::move(name),
                      .type = spec.layout.type,
                      .arrangement = placement.arrangement,
                      .walks = std::move(walks)};
  // A dimension of one element lies in any stick.
  if (stick >= 0 && spec.axes[static_cast<size_t>(stick)].card() > 1) operand.stick = stick;
  operand.stick_offset = placement.offset % placement.stick_elements;
  return operand;
}

namespace {

using graph::OpFamily;

class CallLister {
 public:
  CallLister(const graph::Graph& graph, const CardPlan& plan) : graph_(graph), plan_(plan) {}

  std::vector<CardCall> run() {
    for (const DeviceOp& op : plan_.ops) {
      if (op.name == "restickify" || op.inputs.empty() || op.outputs.empty()) continue;
      if (op.graph_op < 0) {
        add_one(op, nullptr);
        continue;
      }
      const graph::Op& from = graph_.ops[op.graph_op];
      switch (from.def->family) {
        case OpFamily::kNorm:
          from.name() == "softmax" ? add_softmax(op, from) : add_norm(op, from);
          break;
        case OpFamily::kReduce:
          if (!reduces_one_element(op, from)) add_one(op, &from);  // otherwise a copy
          break;
        case OpFamily::kCall:
        case OpFamily::kOther:
          break;
        default:
          add_one(op, &from);
      }
    }
    return std::move(calls_);
  }

 private:
  CardOperand operand(int32_t buffer, std::vector<int> walks) const {
    const CardBuffer& b = plan_.buffers[buffer];
    return operand_of("%" + graph_.value(b.value).name, b.spec, b.placement, std::move(walks));
  }

  bool reduces_one_element(const DeviceOp& op, const graph::Op& from) const {
    const CardBuffer& x = plan_.buffers[op.inputs[0]];
    return x.spec.axes.at(static_cast<size_t>(from.int_attr("axis"))).card() == 1;
  }

  CardCall& add(const DeviceOp& op, std::string name, std::string_view of) {
    calls_.push_back({.name = std::move(name),
                      .what = fmt::format("{} %{}", of, graph_.value(plan_.buffers[op.outputs[0]].value).name)});
    for (const int64_t split : op.splits) calls_.back().cores *= static_cast<int>(split);
    return calls_.back();
  }

  // |from| is null for a copy to an output.
  void add_one(const DeviceOp& op, const graph::Op* from) {
    CardCall& call = add(op, op.name, from == nullptr ? "copy" : from->name());
    for (size_t i = 0; i < op.inputs.size(); ++i) call.inputs.push_back(operand(op.inputs[i], op.walks.at(i)));
    call.outputs.push_back(operand(op.outputs[0], op.walks.back()));
    if (op.reduced_dim >= 0) call.reduced = {op.reduced_dim};
    if (from == nullptr) return;
    if (from->def->family == OpFamily::kMatmul) call.outputs[0].type = CardType::kDl16;  // and a cast behind it
    if (from->def->family == OpFamily::kGather) call.inputs[1].index = true;
  }

  // The dimension that a norm works along is whole on every core, so that the iteration lacks it: here it is one more.
  CardOperand along_last(const DeviceOp& op, int32_t buffer, size_t walked) const {
    std::vector<int> walks = op.walks.at(walked);
    if (plan_.buffers[buffer].spec.axes.back().card() > 1) walks.back() = whole(op);
    return operand(buffer, std::move(walks));
  }
  static int whole(const DeviceOp& op) { return static_cast<int>(op.extents.size()); }

  // One value per row of |x|.
  static CardOperand per_row(const char* name, const CardOperand& x, Arrangement arrangement) {
    CardOperand made = x;
    made.name = name;
    made.arrangement = arrangement;
    made.walks.back() = made.stick = -1;
    return made;
  }

  void add_stage(const DeviceOp& op, const graph::Op& from, const char* name, std::vector<CardOperand> inputs,
                 CardOperand output, bool along) {
    CardCall& call = add(op, name, from.name());
    call.inputs = std::move(inputs);
    call.outputs = {std::move(output)};
    if (along) call.reduced = {whole(op)};
  }

  void add_norm(const DeviceOp& op, const graph::Op& from) {
    std::vector<CardOperand> operands;
    for (size_t i = 0; i < op.inputs.size(); ++i) operands.push_back(along_last(op, op.inputs[i], i));
    const CardOperand squares = per_row("exx2", operands[0], Arrangement::kExx2),
                      scale = per_row("scale", operands[0], Arrangement::kStandard);
    add_stage(op, from, "exx2", {operands[0]}, squares, true);
    add_stage(op, from, "layernormscale", {squares}, scale, true);
    operands.insert(operands.begin() + 1, scale);
    add_stage(op, from, "layernormnorm", std::move(operands), along_last(op, op.outputs[0], op.walks.size() - 1), true);
  }

  void add_softmax(const DeviceOp& op, const graph::Op& from) {
    const CardOperand x = along_last(op, op.inputs[0], 0), y = along_last(op, op.outputs[0], op.walks.size() - 1);
    if (x.walks.back() < 0) return;  // of one element: a constant
    const CardOperand top = per_row("maximum", x, Arrangement::kStandard),
                      sum = per_row("sum", x, Arrangement::kStandard);
    add_stage(op, from, "max", {x}, top, true);
    add_stage(op, from, "sub", {x, top}, y, false);
    add_stage(op, from, "exp", {y}, y, false);
    add_stage(op, from, "sum", {y}, sum, true);
    add_stage(op, from, "realdiv", {y, sum}, y, false);
  }

  const graph::Graph& graph_;
  const CardPlan& plan_;
  std::vector<CardCall> calls_;
};

}  // namespace

std::vector<CardCall> plan_calls(const graph::Graph& graph, const CardPlan& plan) {
  return CallLister(graph, plan).run();
}

int64_t check_plan_calls(const graph::Graph& graph, const CardPlan& plan, const RuleMet& met) {
  const std::vector<CardCall> calls = plan_calls(graph, plan);
  for (const CardCall& call : calls) check_card_call(call, met);
  return std::ssize(calls);
}

}  // namespace spyre::device
