// Test support: a graph taken through the phases of the card side, all or some of them, verified after each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plugins/spyre/compiler/card_passes.h"

namespace spyre::testing {

// Owns what a CardState refers to. Not copied or moved.
struct PlannedGraph {
  // Up to phase |last| and with it; all when it is empty.
  explicit PlannedGraph(graph::Graph made, std::string_view last = "");
  // |text| without "graph g {" and "}".
  explicit PlannedGraph(const std::string& text, std::string_view last = "");
  PlannedGraph(const PlannedGraph&) = delete;
  PlannedGraph& operator=(const PlannedGraph&) = delete;

  const device::CardPlan& plan() const { return state.plan; }
  std::vector<std::string> op_names() const;
  // The buffer that holds %name itself, not a re-laid copy or a copy to an output.
  const device::CardBuffer& buffer(std::string_view name) const;

  graph::Graph graph;
  compiler::RuleLog log;
  compiler::CardState state;
};

}  // namespace spyre::testing
