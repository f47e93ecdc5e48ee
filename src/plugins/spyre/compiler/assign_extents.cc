#include "plugins/spyre/compiler/card_plan.h"

namespace spyre::compiler {
Axes assign_extents(const graph::Graph& graph, RuleLog&) {
  Axes axes(graph.values.size());
  for (size_t v = 0; v < axes.size(); ++v) {
    for (const graph::Dim& dim : graph.values[v].type.dims) axes[v].emplace_back(dim.extent);
  }
  return axes;
}
}  // namespace spyre::compiler
