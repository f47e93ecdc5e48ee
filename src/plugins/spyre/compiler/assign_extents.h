// Phase: the axes of every value. Dimensions that operators tie together get one axis. Where a slice, a concatenation,
// a regrouping or a rotation cuts the stick dimension, the cut is put on a whole stick; a matmul's reduced and
// generated dimensions are filled up to whole sticks; the K and V heads of a cache get one card width. So head padding
// comes out of structure alone. A rows dimension is never padded: its bucket is its extent. The axes of a state are [kv
// heads, head size] of its keys; values lie in heads of the same card width.
//
// Tied dimensions form a class; a class holds *cuts*, logical positions that must begin a stick. A cut moves what
// follows it up to the next whole stick; a gap adds sticks before it. Relations copy cuts from class to class until
// nothing changes. Cuts are only added and gaps only grow, within the finite set of positions, so this ends. (A rotary
// head is a cut in its middle; a fused projection a cut between its parts.) What the boundary of the graph has already
// (CardState::given) are cuts to begin with.
#pragma once

#include "plugins/spyre/compiler/card_plan.h"

namespace spyre::compiler {

// Fills |state|.relations and |state|.axes; the number of dimensions that it padded. May refuse by L-16.
int64_t assign_extents(CardState& state);

}  // namespace spyre::compiler
