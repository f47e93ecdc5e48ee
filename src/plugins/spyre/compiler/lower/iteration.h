// How a device operation iterates: the dimensions that work division may cut, and which of them walks each dimension of
// each operand. It follows from the operator and the card extents alone.
//
// The iteration of an operator is that of its result, with what it reduces in front (so that the parts of a sum fall to
// neighbouring cores). A dimension in which some operand holds its stick counts whole sticks; an index that a gather or
// a store reads does not make it so (layout rules exempt it).
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "plugins/spyre/device/program.h"

namespace spyre::compiler {

struct IterationDim {
  std::string name;  // of a result's dimension "0", "1", ...; "K" what a matmul reduces, "R" what a reduction does
  int64_t extent = 1;
  bool reduced = false;
};

struct Iteration {
  std::vector<IterationDim> dims;
  std::vector<std::vector<int>> walks;  // as DeviceOp::walks
};

// |inputs| are parallel to the operator's operands, null for a batch.
Iteration iteration_of(const graph::Graph& graph, const graph::Op& op,
                       const std::vector<const device::CardBuffer*>& inputs, const device::CardBuffer& result);

// Gives |op| the iteration, undivided.
void set_iteration(device::DeviceOp& op, const Iteration& iteration);

// Of a copy or a restickify: every dimension walks itself.
Iteration copy_iteration(const device::CardBuffer& from, const device::CardBuffer& to);

}  // namespace spyre::compiler
