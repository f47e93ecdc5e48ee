#include "plugins/spyre/compiler/card_plan.h"

namespace spyre::compiler {
Layouts choose_layouts(const graph::Graph& graph, const Axes&, RuleLog&) {
  Layouts layouts;
  for (const graph::Value& value : graph.values) layouts.stick.push_back(value.type.rank() - 1);
  return layouts;
}
}  // namespace spyre::compiler
