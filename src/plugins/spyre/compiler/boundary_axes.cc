#include "plugins/spyre/compiler/boundary_axes.h"

namespace spyre::compiler {

std::string BoundaryAxes::to_string() const {
  std::string text;
  for (const auto* list : {&inputs, &parameters, &states, &outputs}) {
    text += "\n";
    for (const std::vector<device::Axis>& axes : *list) {
      text += "[";
      for (const device::Axis& axis : axes) text += axis.to_string() + ",";
      text += "]";
    }
  }
  return text;
}

}  // namespace spyre::compiler
