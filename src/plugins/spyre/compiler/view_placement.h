// Whether a view operator of the graph is a view on the card: an offset and strides into its operand's memory. Where it
// is not, it is a copy.
#pragma once

#include <optional>

#include "plugins/spyre/compiler/card_plan.h"
#include "plugins/spyre/device/placement.h"

namespace spyre::compiler {

// The placement of the result of |op| (slice, transpose, reshape) on an operand that lies at |base|; none for a copy,
// and for every other operator.
std::optional<device::Placement> view_placement(const graph::Graph& graph, const graph::Op& op, const Axes& axes,
                                                int stick, const device::Placement& base);

// The other way round: where the operand of |op| (transpose, reshape) lies, with |stick| in its stick, when the result
// has |of_result|; none where it does not lie regularly, and for every other operator.
std::optional<device::Placement> inverse_placement(const graph::Graph& graph, const graph::Op& op, const Axes& axes,
                                                   int stick, const device::Placement& of_result);

// The part of |whole| from logical index |start| of dimension |axis| on, which has the axis |part|; none where the part
// is padded in another way.
std::optional<device::Placement> part_placement(const device::Axis& whole, const device::Axis& part, int axis,
                                                int64_t start, const device::Placement& of_whole);

}  // namespace spyre::compiler
