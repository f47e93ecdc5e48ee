#include "plugins/spyre/compiler/lower_operators.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "graph/op_def.h"
#include "plugins/spyre/compiler/lower/card_ops.h"
#include "plugins/spyre/compiler/lower/iteration.h"
#include "plugins/spyre/compiler/stick_choices.h"
#include "plugins/spyre/compiler/view_placement.h"
#include "plugins/spyre/device/entry_layout.h"

namespace spyre::compiler {

using device::BufferHome;
using device::CardBuffer;
using device::DeviceOp;
using device::Placement;
using device::TensorSpec;
using graph::Op;
using graph::Type;
using graph::ValueId;

TensorSpec CardState::spec(ValueId value, int stick) const {
  const Type& type = graph.type(value);
  if (by_entry[value] && stick == type.rank() - 1) {
    TensorSpec spec{.dtype = type.dtype, .axes = axes[value], .layout = {}};
    spec.layout = device::entry_layout(type.dtype, spec.card());
    return spec;
  }
  std::vector<int> order;
  for (int d = 0; d < type.rank(); ++d) {
    if (d != stick) order.push_back(d);
  }
  if (type.rank() > 0) order.push_back(stick);
  return TensorSpec::with_axes(type.dtype, axes[value], order);
}

namespace {

class Lowering {
 public:
  explicit Lowering(CardState& state)
      : state_(state),
        graph_(state.graph),
        axes_(state.axes),
        layouts_(state.layouts),
        plan_(state.plan),
        buffer_of_(graph_.values.size(), -1) {
    for (const Layouts::Relay& r : layouts_.relays) relay_of_[{r.op, r.operand}] = r.to_stick;
  }

  void run() {
    declare(graph_.inputs, BufferHome::kInput);
    declare(graph_.parameters, BufferHome::kParameter);
    declare(graph_.states, BufferHome::kState);
    for (int32_t i = 0; i < static_cast<int32_t>(graph_.ops.size()); ++i) lower(i);
    copy_outputs();
  }

 private:
  const Type& type(ValueId v) const { return graph_.type(v); }
  const CardBuffer& buffer(int32_t b) const { return plan_.buffers[b]; }

  int32_t add_buffer(ValueId value, int stick, BufferHome home, int32_t index) {
    CardBuffer b;
    b.spec = state_.spec(value, stick);
    b.value = value;
    b.home = home;
    b.index = index;
    b.placement = Placement::of(b.spec.layout);
    plan_.buffers.push_back(std::move(b));
    return static_cast<int32_t>(plan_.buffers.size()) - 1;
  }

  void declare(const std::vector<ValueId>& values, BufferHome home) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (type(values[i]).kind == graph::TypeKind::kBatch) continue;
      buffer_of_[values[i]] = add_buffer(values[i], layouts_.stick[values[i]], home, static_cast<int32_t>(i));
    }
  }

  int32_t output_index(ValueId value) const {
    const auto found = std::find(graph_.outputs.begin(), graph_.outputs.end(), value);
    return found == graph_.outputs.end() ? -1 : static_cast<int32_t>(found - graph_.outputs.begin());
  }

  int32_t define(ValueId value) {
    const int32_t index = output_index(value);
    return buffer_of_[value] =
               add_buffer(value, layouts_.stick[value], index < 0 ? BufferHome::kPool : BufferHome::kOutput, index);
  }

  // The buffer that operand |i| of operator |op_index| is read from: another one where the value is re-laid, one for
  // all readers of a layout.
  int32_t operand(int32_t op_index, int32_t i) {
    const ValueId value = graph_.ops[op_index].inputs[i];
    const int32_t own = buffer_of_[value];
    const auto relay = relay_of_.find({op_index, i});
    if (relay == relay_of_.end()) return own;
    const auto [found, inserted] = relaid_.emplace(std::pair(value, relay->second), -1);
    if (inserted) {
      SPYRE_CHECK(!state_.by_entry[value], "%{} lies by entry and would be re-laid", graph_.value(value).name);
      found->second = add_buffer(value, relay->second, BufferHome::kPool, -1);
      CardBuffer& moved = plan_.buffers.back();
      moved.relaid_from = own;
      if (!is_thin(type(value), relay->second)) {
        moved.spec.layout = device::restickified(buffer(own).spec.layout, relay->second);
        moved.placement = Placement::of(moved.spec.layout);
      }
    }
    return found->second;
  }

  void lower(int32_t index) {
    const Op& op = graph_.ops[index];
    const ValueId out = op.outputs[0];
    std::vector<int32_t> inputs;
    for (int32_t i = 0; i < static_cast<int32_t>(op.inputs.size()); ++i) inputs.push_back(operand(index, i));
    if (output_index(out) < 0 && type(out).is_tensor() && inputs[0] >= 0) {
      const auto view = view_placement(graph_, op, axes_, layouts_.stick[out], buffer(inputs[0]).placement);
      if (view.has_value()) return add_view(out, inputs[0], *view);
    }
    const int32_t result = type(out).is_state() ? buffer_of_[out] = inputs[0] : define(out);
    emit_sequence(index, inputs, result);
  }

  // The first operation of a sequence reads the operands, the last one reads them and writes the result; between them
  // it stays in scratchpad. All iterate alike.
  void emit_sequence(int32_t index, const std::vector<int32_t>& inputs, int32_t result) {
    const Op& op = graph_.ops[index];
    std::vector<const CardBuffer*> operands;
    for (const int32_t b : inputs) operands.push_back(b < 0 ? nullptr : &buffer(b));
    const Iteration iteration = iteration_of(graph_, op, operands, buffer(result));
    // Of the operand as it is read, which may be re-laid.
    const std::vector<std::string> names =
        card_op_names(op, inputs[0] < 0 ? -1 : buffer(inputs[0]).placement.stick_dim);
    for (size_t i = 0; i < names.size(); ++i) {
      const bool first = i == 0, last = i + 1 == names.size();
      DeviceOp made{.name = names[i], .graph_op = index};
      if (first || last) made.inputs = inputs;
      if (last) made.outputs = {result};
      set_iteration(made, iteration);
      if (!last) made.walks.pop_back();
      if (made.inputs.empty()) made.walks.clear();
      plan_.ops.push_back(std::move(made));
    }
  }

  void add_view(ValueId value, int32_t of, const Placement& placement) {
    buffer_of_[value] = add_buffer(value, layouts_.stick[value], BufferHome::kNone, -1);
    CardBuffer& b = plan_.buffers.back();
    b.view = true;
    b.base = buffer(of).view ? buffer(of).base : of;
    b.placement = placement;
  }

  // Graph outputs that no operation writes in place: inputs, parameters, and values that are given twice.
  void copy_outputs() {
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const ValueId value = graph_.outputs[i];
      const int32_t own = buffer_of_[value];
      if (buffer(own).home == BufferHome::kOutput && buffer(own).index == static_cast<int32_t>(i)) continue;
      const int32_t copy = add_buffer(value, layouts_.stick[value], BufferHome::kOutput, static_cast<int32_t>(i));
      DeviceOp op{.name = "identity", .inputs = {own}, .outputs = {copy}};
      set_iteration(op, copy_iteration(buffer(own), buffer(copy)));
      plan_.ops.push_back(std::move(op));
    }
  }

  const CardState& state_;
  const graph::Graph& graph_;
  const Axes& axes_;
  const Layouts& layouts_;
  device::CardPlan& plan_;
  std::vector<int32_t> buffer_of_;
  std::map<std::pair<int32_t, int32_t>, int> relay_of_;
  std::map<std::pair<ValueId, int>, int32_t> relaid_;
};

}  // namespace

int64_t lower_operators(CardState& state) {
  Lowering(state).run();
  return static_cast<int64_t>(state.plan.ops.size());
}

}  // namespace spyre::compiler
