// How each graph operator becomes card operators: their names in the order they run. The last one of a sequence has the
// operator's operands and results; those before it keep what they make in scratchpad and are accounted, not executed
// (the operator's inner rounding points are fixed by docs/numerics.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace spyre::compiler {

bool has_card_lowering(std::string_view op_name);

// |stick| is the dimension of the first operand that lies in the stick: a reduction off it has another name.
std::vector<std::string> card_op_names(const graph::Op& op, int stick);

}  // namespace spyre::compiler
