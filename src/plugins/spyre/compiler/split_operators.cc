#include "plugins/spyre/compiler/split_operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "graph/builder.h"
#include "graph/op_def.h"
#include "plugins/spyre/compiler/assign_extents.h"
#include "plugins/spyre/compiler/stick_choices.h"

namespace spyre::compiler {

using graph::Graph;
using graph::Op;
using graph::Role;
using graph::ValueId;

namespace {

bool is_view(const Op& op) {
  const std::string_view name = op.name();
  return name == "reshape" || name == "transpose" || name == "slice";
}

Axes axes_of(const Graph& graph) {
  RuleLog log;
  CardState state(graph, log);
  for (const graph::Value& value : graph.values) state.layouts.stick.push_back(given_stick(value.type));
  assign_extents(state);
  return std::move(state.axes);
}

// One part under construction.
class UnitBuilder {
 public:
  UnitBuilder(const Graph& whole, const Axes& axes, std::string name)
      : whole_(whole), axes_(axes), builder_(std::move(name)) {}

  // What |value| of the whole graph is here: declared, or a view of what is.
  ValueId get(ValueId value) {
    if (const auto found = here_.find(value); found != here_.end()) return found->second;
    const graph::Value& of = whole_.value(value);
    if (of.type.is_state()) return here_[value] = declare_state(value);
    if (of.role == Role::kResult && is_view(whole_.ops[of.producer]))
      return here_[value] = record(whole_.ops[of.producer]);
    if (of.role == Role::kParameter) {
      unit_.parameters.push_back(value);
      unit_.axes.parameters.push_back(axes_[value]);
      return here_[value] = builder_.parameter(of.name, of.type, of.encoding);
    }
    unit_.inputs.push_back(value);
    unit_.axes.inputs.push_back(axes_[value]);
    return here_[value] = builder_.input(fmt::format("in{}", unit_.inputs.size()), of.type);
  }

  ValueId record(const Op& op) {
    std::vector<ValueId> operands;
    for (const ValueId v : op.inputs) operands.push_back(get(v));
    return builder_.op1(op.name(), std::move(operands), op.attributes);
  }

  OperatorUnit finish(ValueId result, ValueId made) {
    if (whole_.type(result).is_tensor()) {
      builder_.output(made);
      unit_.outputs.push_back(result);
      unit_.axes.outputs.push_back(axes_[result]);
    }
    unit_.graph = builder_.finish();
    return std::move(unit_);
  }

 private:
  // A state that a store has replaced is bound to the same cache.
  ValueId declare_state(ValueId value) {
    ValueId declared = value;
    while (whole_.value(declared).role == Role::kResult)
      declared = whole_.ops[whole_.value(declared).producer].inputs[0];
    unit_.states.push_back(declared);
    unit_.axes.states.push_back(axes_[declared]);
    return builder_.state("kv", whole_.type(declared));
  }

  const Graph& whole_;
  const Axes& axes_;
  graph::Builder builder_;
  OperatorUnit unit_;
  std::map<ValueId, ValueId> here_;
};

}  // namespace

std::vector<OperatorUnit> split_operators(const Graph& graph) {
  const Axes axes = axes_of(graph);
  std::vector<OperatorUnit> units;
  for (const Op& op : graph.ops) {
    const ValueId result = op.outputs[0];
    const bool given_out = std::find(graph.outputs.begin(), graph.outputs.end(), result) != graph.outputs.end();
    if (is_view(op) && !given_out) continue;
    UnitBuilder unit(graph, axes, std::string(op.name()));
    const ValueId made = unit.record(op);
    units.push_back(unit.finish(result, made));
  }
  return units;
}

}  // namespace spyre::compiler
