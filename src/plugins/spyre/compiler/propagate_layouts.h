// Phase: which dimension of every value lies in the stick, and which edges are restickified. The choice follows from
// the operators and the logical extents (what must be padded depends on it), and makes the restickified device elements
// as few as possible.
//
// First each operator, in order, takes what costs least here and now. When that is free, or no more than a bound from
// below, it is the answer. Otherwise a beam search walks the operators with the best states so far: a state is the set
// of layouts in which each live value is at hand, states with equal sets are one, a state whose cost plus a bound of
// the rest reaches the best known answer is dropped. The bound is a backward dynamic program over the edges: each edge
// pays its least move divided by the number of readers that could share it, and a share of what its reader's result
// pays later. Width 64, then 200; where nothing was cut for width the answer is the least one.
#pragma once

#include "plugins/spyre/compiler/card_plan.h"
#include "plugins/spyre/compiler/stick_choices.h"

namespace spyre::compiler {

struct LayoutSearch {
  bool searched = false;    // the step-by-step choice was not known to be the best
  bool cut = false;         // the beam was too narrow for all states
  int64_t greedy_cost = 0;  // of the step-by-step choice; -1: it met an obstacle
  int64_t cost = 0;         // device elements moved
};

// Refuses by L-06, L-07, L-09, L-16, L-17, L-20.
Layouts propagate_layouts(const graph::Graph& graph, RuleLog& log, LayoutSearch* found = nullptr);

// As a phase: fills |state|.layouts; the number of edges that are restickified.
int64_t propagate_layouts(CardState& state);

}  // namespace spyre::compiler
