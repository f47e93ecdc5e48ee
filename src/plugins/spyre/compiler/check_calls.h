// Phase: every card function that the plan calls is one that the card has, with sticks, arrangements and types that it
// takes (device/card_call.h: L-20, L-25 to L-31, L-37 to L-39). Runs when work is divided, since cores are part of a
// call.
#pragma once

#include "plugins/spyre/compiler/card_plan.h"

namespace spyre::compiler {

// The number of calls.
int64_t check_calls(CardState& state);

}  // namespace spyre::compiler
