// Phase: the rules that speak of operators and types alone (L-01 .. L-05, L-08, L-19, L-20, L-40).
#pragma once

#include "plugins/spyre/compiler/card_plan.h"

namespace spyre::compiler {

// The number of operators looked at.
int64_t verify_rules(CardState& state);

}  // namespace spyre::compiler
