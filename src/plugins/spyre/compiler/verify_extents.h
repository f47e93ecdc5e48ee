// Phase: the axes are checked against everything that operators demand of them (L-10 .. L-13, L-16, L-18). What
// assign_extents finds passes; this is what refuses axes that come from elsewhere.
#pragma once

#include "plugins/spyre/compiler/card_plan.h"

namespace spyre::compiler {

// The number of relations that hold.
int64_t verify_extents(CardState& state);

}  // namespace spyre::compiler
