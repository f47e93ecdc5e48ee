// Axes that a graph's inputs, parameters, states and outputs have because others decided them: where a program is a
// part of something larger, its padding must be what the neighbours have. A plain value.
#pragma once

#include <string>
#include <vector>

#include "plugins/spyre/device/axis.h"

namespace spyre::compiler {

// Parallel to the lists of the graph; nothing at all: the program decides alone.
struct BoundaryAxes {
  std::vector<std::vector<device::Axis>> inputs, parameters, states, outputs;

  bool empty() const { return inputs.empty() && parameters.empty() && states.empty() && outputs.empty(); }
  std::string to_string() const;  // equal for equal axes
  bool operator==(const BoundaryAxes&) const = default;
};

}  // namespace spyre::compiler
