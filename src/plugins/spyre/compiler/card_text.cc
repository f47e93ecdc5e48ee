#include "plugins/spyre/compiler/card_text.h"

#include <fmt/ranges.h>

#include "graph/text.h"

namespace spyre::compiler {

using device::BufferHome;
using device::CardBuffer;
using device::DeviceOp;

namespace {

std::string home_of(const CardBuffer& b) {
  switch (b.home) {
    case BufferHome::kInput:
      return fmt::format("input {}", b.index);
    case BufferHome::kParameter:
      return fmt::format("parameter {}", b.index);
    case BufferHome::kState:
      return fmt::format("state {}", b.index);
    case BufferHome::kOutput:
      return fmt::format("output {}", b.index);
    case BufferHome::kPool:
      return b.pool_offset < 0 ? "pool" : fmt::format("pool +{}", b.pool_offset);
    case BufferHome::kNone:
      break;
  }
  return fmt::format("view of b{} +{}", b.base, b.placement.offset);
}

std::string axes_of(const std::vector<device::Axis>& axes) {
  std::string text;
  for (const device::Axis& axis : axes) text += (text.empty() ? "" : ", ") + axis.to_string();
  return "(" + text + ")";
}

std::string line(const CardState& state, size_t index) {
  const CardBuffer& b = state.plan.buffers[index];
  return fmt::format("  b{} = %{} {} {} in {}, {} bytes: {}{}\n", index, state.graph.value(b.value).name,
                     to_string(b.spec.dtype), axes_of(b.spec.axes), b.spec.layout.to_string(), b.spec.card_bytes(),
                     home_of(b), b.relaid_from >= 0 ? fmt::format(", b{} re-laid", b.relaid_from) : "");
}

std::string names(const std::vector<int32_t>& buffers) {
  std::string text;
  for (const int32_t b : buffers) text += (text.empty() ? "" : ", ") + (b < 0 ? "batch" : fmt::format("b{}", b));
  return text.empty() ? "-" : text;
}

std::string line(const DeviceOp& op) {
  std::string division;
  for (size_t d = 0; d < op.extents.size(); ++d) {
    division += fmt::format(" {}:{}/{}", op.split_dims[d], op.extents[d], op.splits[d]);
  }
  std::string text = fmt::format("  {} <- {}({}) over{}", names(op.outputs), op.name, names(op.inputs), division);
  if (op.estimated_ns > 0) {
    text += fmt::format(", {} MACs, {} bytes read, {} written, {:.1f} us", op.macs, op.read_bytes, op.write_bytes,
                        op.estimated_ns / 1000);
  }
  return text + "\n";
}

std::string before_lowering(const CardState& state) {
  std::string text = graph::print(state.graph) + "values:\n";
  for (size_t v = 0; v < state.layouts.stick.size(); ++v) {
    const int stick = state.layouts.stick[v];
    text += fmt::format("  %{}: {} in the stick", state.graph.values[v].name,
                        stick < 0 ? std::string("nothing") : fmt::format("dimension {}", stick));
    if (v < state.axes.size()) text += " of " + axes_of(state.axes[v]);
    text += "\n";
  }
  for (const Layouts::Relay& relay : state.layouts.relays) {
    const graph::Op& op = state.graph.ops[relay.op];
    text += fmt::format("  %{} is re-laid to dimension {} for {}\n", state.graph.value(op.inputs[relay.operand]).name,
                        relay.to_stick, describe(state.graph, op));
  }
  return text;
}

}  // namespace

std::string card_text(const CardState& state) {
  if (state.plan.buffers.empty()) return before_lowering(state);
  std::string text = "buffers:\n";
  for (size_t b = 0; b < state.plan.buffers.size(); ++b) text += line(state, b);
  text += "operations:\n";
  for (const DeviceOp& op : state.plan.ops) text += line(op);
  if (state.plan.pool_bytes > 0) {
    text += fmt::format("pool: {} bytes, at least {} are live at once\n", state.plan.pool_bytes,
                        state.plan.pool_lower_bound);
  }
  return text;
}

}  // namespace spyre::compiler
