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

}  // namespace spyre::compiler
