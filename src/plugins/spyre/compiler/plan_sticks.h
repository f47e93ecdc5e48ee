// Which dimension of each value lies in the stick: a choice that follows from the operators alone, made before extents
// are known (what must be padded depends on what lies in the stick).
//
// Inputs and parameters lie with their last dimension in the stick. Views keep what is in the stick where it is: a
// transpose moves the stick dimension, a reshape splits or merges it. Pointwise operators work on any one stick
// dimension; matmul, norms, rotations and attention want the last one. A value whose stick dimension has extent 1 (or
// none is left: sparse) is *thin*: one element per stick. It may be broadcast along the stick by a pointwise operator,
// and nothing can make it dense again (L-07).
#pragma once

#include <vector>

#include "graph/graph.h"
#include "plugins/spyre/compiler/card_plan.h"

namespace spyre::compiler {

// One group of dimensions that a reshape regroups: the products of |from| (of x) and |to| (of the result) are equal,
// and no smaller group is. Dimensions of extent 1 belong to none. One side has one entry unless boundaries cross.
struct ReshapeGroup {
  std::vector<int> from, to;
};
std::vector<ReshapeGroup> reshape_groups(const graph::Type& x, const graph::Type& y);

// The stick dimension of |type| at |stick| holds one element per stick.
bool is_thin(const graph::Type& type, int stick);

Layouts plan_sticks(const graph::Graph& graph, RuleLog& log);

}  // namespace spyre::compiler
