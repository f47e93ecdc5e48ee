#include "plugins/spyre/compiler/reduce_spans.h"

#include <algorithm>

#include "plugins/spyre/device/core_map.h"

namespace spyre::compiler {

using device::CardBuffer;
using device::CardPlan;
using device::DeviceOp;

namespace {

// What one core's part of |dim| reaches beyond its first element, in elements.
int64_t reach(const CardBuffer& b, size_t dim, int64_t split) {
  const int64_t card = b.spec.axes[dim].card();
  const bool stick = static_cast<int>(dim) == b.placement.stick_dim;
  const int64_t places = stick ? (card + b.placement.stick_elements - 1) / b.placement.stick_elements : card;
  return ((places + split - 1) / split - 1) * b.placement.strides[dim];
}

int64_t split_of(const DeviceOp& op, int walk) {
  return walk < 0 ? 1 : op.splits[walk];
}

int32_t buffer_of(const DeviceOp& op, size_t operand) {
  return operand < op.inputs.size() ? op.inputs[operand] : op.outputs[operand - op.inputs.size()];
}

// The next exact split of |dim|, or the present one where the cores do not suffice.
int64_t next_split(const DeviceOp& op, size_t dim, int64_t cores) {
  const int64_t others = device::core_count(op.splits) / op.splits[dim];
  for (int64_t split = op.splits[dim] + 1; split <= std::min(op.extents[dim], cores / others); ++split) {
    if (op.extents[dim] % split == 0) return split;
  }
  return op.splits[dim];
}

// Splits the dimension that helps most by one step; false when none helps.
bool split_further(const CardPlan& plan, DeviceOp& op, size_t operand, bool reduced, int64_t cores) {
  const CardBuffer& b = plan.buffers[buffer_of(op, operand)];
  int best = -1;
  int64_t gain = 0, split = 1;
  for (size_t d = 0; d < op.walks[operand].size(); ++d) {
    const int walk = op.walks[operand][d];
    if (walk < 0 || (walk == op.reduced_dim) != reduced) continue;
    const int64_t next = next_split(op, walk, cores), saved = reach(b, d, op.splits[walk]) - reach(b, d, next);
    if (saved <= gain) continue;
    best = walk, gain = saved, split = next;
  }
  if (best < 0) return false;
  op.splits[best] = split;
  return true;
}

}  // namespace

int64_t span_bytes(const CardPlan& plan, const DeviceOp& op, size_t operand) {
  const CardBuffer& b = plan.buffers[buffer_of(op, operand)];
  int64_t elements = b.placement.stick_elements;
  for (size_t d = 0; d < b.spec.axes.size(); ++d) elements += reach(b, d, split_of(op, op.walks[operand][d]));
  return elements * static_cast<int64_t>(size_of(b.spec.dtype));
}

SpanReduction reduce_spans_of(const CardPlan& plan, DeviceOp& op, int64_t cores) {
  SpanReduction done;
  for (size_t operand = 0; operand < op.walks.size(); ++operand) {
    const int32_t b = buffer_of(op, operand);
    if (b < 0 || plan.buffers[b].home == device::BufferHome::kState) continue;
    int64_t span = span_bytes(plan, op, operand);
    for (const bool reduced : {false, true}) {
      while (span > kMaxSpanBytes && split_further(plan, op, operand, reduced, cores)) {
        span = span_bytes(plan, op, operand);
        done.split = true;
      }
    }
    if (span > kMaxSpanBytes && done.too_long < 0) done = {done.split, b, span};
  }
  return done;
}

int64_t reduce_spans(CardState& state) {
  int64_t changed = 0;
  for (DeviceOp& op : state.plan.ops) {
    const SpanReduction done = reduce_spans_of(state.plan, op, device::kCores);
    changed += done.split;
    require_rule(state.log, device::Rule::kSpan, done.too_long < 0, [&] {
      const std::string what =
          op.graph_op < 0 ? op.name + " to an output" : describe(state.graph, state.graph.ops[op.graph_op]);
      return fmt::format("{}: a core would touch {} bytes of %{} after splitting it as far as it goes", what, done.span,
                         state.graph.value(state.plan.buffers[done.too_long].value).name);
    });
  }
  return changed;
}

}  // namespace spyre::compiler
