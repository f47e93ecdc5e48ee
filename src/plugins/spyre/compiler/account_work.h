// Phase: what every device operation multiplies, reads and writes, on card extents and with padding, and how long that
// takes by the "measured" figures (device/cost.h). Operands are counted where they are read first, results where they
// are written; of a table that is looked up only the rows that are met; of a KV cache nothing: how much of it a step
// reads is accounted per step (device/step_cost.h).
#pragma once

#include "plugins/spyre/compiler/card_plan.h"
#include "plugins/spyre/device/cost.h"

namespace spyre::compiler {

// The work of device operation |index| of a divided plan.
device::OpWork work_of(const graph::Graph& graph, const device::CardPlan& plan, size_t index);

// The number of operations accounted.
int64_t account_work(CardState& state);

}  // namespace spyre::compiler
