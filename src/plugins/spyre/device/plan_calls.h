// The calls of card functions that a card plan makes, as the stick rules see them, and the check of all of them: what
// the device does before it runs a plan operation by operation. So a plan that a pass got wrong is refused by number.
#pragma once

#include <vector>

#include "plugins/spyre/device/card_call.h"
#include "plugins/spyre/device/program.h"

namespace spyre::device {

// |graph| is what the plan was made of. Of the operations that are one function with all its operands: elementwise
// ones, products, reductions. Parts of a sequence that hand values on in scratchpad, and calls (kv_store, attention),
// have rules of their own in the compiler.
std::vector<CardCall> plan_calls(const graph::Graph& graph, const CardPlan& plan);

// Throws Error(kRuleViolation) for the first call that breaks a rule.
void check_plan_calls(const graph::Graph& graph, const CardPlan& plan);

}  // namespace spyre::device
