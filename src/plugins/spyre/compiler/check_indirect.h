// Phase: gathers and stores through an index. The index is read from device memory as it was given: int32, from the
// start of its own tensor (a view at an offset was read from its base); the table does not lie with the looked-up
// dimension in the stick, and neither of them may be what an operation leaves in scratchpad.
#pragma once

#include "plugins/spyre/compiler/card_plan.h"

namespace spyre::compiler {

// The number of operations with an index.
int64_t check_indirect(CardState& state);

}  // namespace spyre::compiler
