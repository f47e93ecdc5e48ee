// Eager granularity: a graph cut into programs of one operator each, as a framework runs operators that it does not
// compile. Reshapes, transposes and slices move nothing there: they go with the operator that reads them. Padding is
// decided for the whole graph (weights are padded when they are loaded) and given to every part; everything else,
// layouts above all, a part decides alone: results lie with their last dimension in the stick.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "plugins/spyre/compiler/boundary_axes.h"

namespace spyre::compiler {

struct OperatorUnit {
  graph::Graph graph;  // named after the operator
  // What its lists are in the whole graph. A state is the one that was declared.
  std::vector<graph::ValueId> inputs, parameters, states, outputs;
  BoundaryAxes axes;
};

// In order of execution. Throws what assigning extents throws for the whole graph.
std::vector<OperatorUnit> split_operators(const graph::Graph& graph);

}  // namespace spyre::compiler
