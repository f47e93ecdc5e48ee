// The calls of card functions that a card plan makes, as the stick rules see them, and the check of all of them: what
// the compiler does when work is divided, and the device before it runs a plan operation by operation. So a plan that a
// pass got wrong is refused by number.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plugins/spyre/device/card_call.h"
#include "plugins/spyre/device/program.h"

namespace spyre::device {

// An operand that lies as |placement| says; |walks| says which iteration dimension walks each of its dimensions.
CardOperand operand_of(std::string name, const TensorSpec& spec, const Placement& placement, std::vector<int> walks);

// |graph| is what the plan was made of. Elementwise operators, products, reductions, copies and lookups are one call;
// norms and softmax the calls of their sequence, whose inner results have the layout of what they were made from.
// Rotations and calls (kv_store, attention) have rules of their own in the compiler.
std::vector<CardCall> plan_calls(const graph::Graph& graph, const CardPlan& plan);

// The number of calls. Throws Error(kRuleViolation) for the first that breaks a rule.
int64_t check_plan_calls(const graph::Graph& graph, const CardPlan& plan, const RuleMet& met = nullptr);

}  // namespace spyre::device
