// Phase, the second of work division: a matmul whose spans are in order takes the cheapest of all exact divisions by
// the planner's rates (device/cost.h): batch, rows, generated sticks and reduced sticks; of equal ones the one
// with more cores. K is divided where rows and columns of sticks have too few divisors (31 rows, 37 columns): no width
// of the models that are known, as the card's own planner keeps K whole in practice (torch-spyre cost model, M).
#pragma once

#include <functional>
#include <vector>

#include "plugins/spyre/compiler/card_plan.h"

namespace spyre::compiler {

// What a division costs; the fewer the better.
using DivisionScore = std::function<double(const std::vector<int64_t>& splits)>;

// The cheapest of all exact divisions of |extents| over |cores| at most. Of equals (memory bounds them) the one with
// more cores, as one core cannot draw what the memory gives; else the first.
std::vector<int64_t> cheapest_division(const std::vector<int64_t>& extents, int64_t cores, const DivisionScore& score);

// The number of matmuls divided.
int64_t divide_matmuls(CardState& state);

}  // namespace spyre::compiler
