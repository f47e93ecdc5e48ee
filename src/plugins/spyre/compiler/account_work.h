// Phase: what every device operation multiplies, reads and writes, on card extents and with padding, and how long that
// takes by the "measured" figures (device/op_work.h), with nothing in the scratchpad but what the stages of an operator
// hand on. Operands are counted where they are read first, results where they are written; of a table that is looked up
// only the rows that are met; of a KV cache nothing: how much of it a step reads is accounted per step
// (device/step_cost.h).
#pragma once

#include "plugins/spyre/compiler/card_plan.h"

namespace spyre::compiler {

// The number of operations accounted. An operation's time is that of a bundle of its own; the plan's that of its
// bundles.
int64_t account_work(CardState& state);

}  // namespace spyre::compiler
