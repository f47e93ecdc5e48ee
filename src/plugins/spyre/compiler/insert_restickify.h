// Phase: a value that is read in another layout than its own is moved to it before its first reader, once for all
// readers of that layout. An operation of its own, from memory to memory (ReStickifyOpHBM).
#pragma once

#include "plugins/spyre/compiler/card_plan.h"

namespace spyre::compiler {

// The number of restickifies that it put in.
int64_t insert_restickify(CardState& state);

}  // namespace spyre::compiler
