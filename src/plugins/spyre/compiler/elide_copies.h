// Phase: copies that only move a value to where it is wanted are dropped, and the value is made there.
//
// A transpose or a regrouping that is a copy, because its result is a graph output or lies in an order of its own: what
// it reads is made in the memory of the result, through the view turned round. A concatenation: each part is made in
// its place. Both only for values that an operation makes in the pool, of which there is no view, and whose elements
// lie as regularly the one way as the other.
#pragma once

#include "plugins/spyre/compiler/card_plan.h"

namespace spyre::compiler {

// The number of device operations dropped.
int64_t elide_copies(CardState& state);

}  // namespace spyre::compiler
