// Phase, the first of work division: an operation is split until no core touches more than the card's span of one
// operand (L-15), by the smallest exact splits that help; dimensions of the result before a reduced one.
//
// A span is the range of addresses from the first to the last stick that a core touches: splitting a dimension that is
// walked inside of another one does not shorten it. (A state's size is not known to a program: it has no span here.)
#pragma once

#include <vector>

#include "plugins/spyre/compiler/card_plan.h"

namespace spyre::compiler {

// 255.996 MiB (torch-spyre, H).
inline constexpr int64_t kMaxSpanBytes = (int64_t{256} << 20) - 4096;

// Bytes between the first and the last element that a core touches of |operand| (inputs, then outputs).
int64_t span_bytes(const device::CardPlan& plan, const device::DeviceOp& op, size_t operand);

// One operation, over |cores| at most.
struct SpanReduction {
  bool split = false;
  int32_t too_long = -1;  // a buffer of which a core still touches more than it may
  int64_t span = 0;       // of that one
};
SpanReduction reduce_spans_of(const device::CardPlan& plan, device::DeviceOp& op, int64_t cores);

// The number of operations that had to be split.
int64_t reduce_spans(CardState& state);

}  // namespace spyre::compiler
