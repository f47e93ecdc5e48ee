#include "plugins/spyre/testing/planned_graph.h"

#include <algorithm>

#include "base/error.h"
#include "graph/text.h"
#include "plugins/spyre/compiler/verify_card_plan.h"

namespace spyre::testing {

PlannedGraph::PlannedGraph(graph::Graph made, std::string_view last) : graph(std::move(made)), state(graph, log) {
  bool found = last.empty();
  for (const compiler::CardPass& pass : compiler::card_passes()) {
    pass.run(state);
    compiler::verify_card_plan(state, pass.name);
    found = found || pass.name == last;
    if (pass.name == last) break;
  }
  SPYRE_CHECK(found, "no phase is called {}", last);
}

PlannedGraph::PlannedGraph(const std::string& text, std::string_view last)
    : PlannedGraph(graph::parse("graph g {\n" + text + "\n}"), last) {}

std::vector<std::string> PlannedGraph::op_names() const {
  std::vector<std::string> names;
  for (const device::DeviceOp& op : state.plan.ops) names.push_back(op.name);
  return names;
}

const device::CardBuffer& PlannedGraph::buffer(std::string_view name) const {
  const auto id = graph.find(name);
  const auto found = std::find_if(state.plan.buffers.begin(), state.plan.buffers.end(),
                                  [&](const auto& b) { return id.has_value() && b.value == *id && b.relaid_from < 0; });
  SPYRE_CHECK(found != state.plan.buffers.end(), "%{} has no buffer", name);
  return *found;
}

}  // namespace spyre::testing
