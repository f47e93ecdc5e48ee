// The card side of compilation: what its phases hand on, and the rules they check on the way. A phase is one file with
// a like-named test; card_passes.h is their order.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "plugins/spyre/compiler/boundary_axes.h"
#include "plugins/spyre/compiler/extent_relations.h"
#include "plugins/spyre/compiler/layouts.h"
#include "plugins/spyre/device/axis.h"
#include "plugins/spyre/device/program.h"
#include "plugins/spyre/device/rules.h"

namespace spyre::compiler {

// Counts the checks a graph passed, by rule: what `inspect` shows as "rules met".
class RuleLog {
 public:
  int64_t& operator[](device::Rule rule) { return counts_[static_cast<size_t>(rule)]; }
  int64_t operator[](std::string_view number) const;  // 0 for a number that no rule has
  std::map<std::string, int64_t> by_number() const;   // those met

 private:
  std::array<int64_t, 256> counts_{};
};

// Counts one check of |rule|; refuses when it failed. |detail| makes the text of the refusal.
template <typename Detail>
void require_rule(RuleLog& log, device::Rule rule, bool passed, Detail&& detail) {
  if (!passed) device::refuse(rule, detail());
  ++log[rule];
}

// "matmul %7", for messages.
std::string describe(const graph::Graph& graph, const graph::Op& op);

// The axes of every value, [value][dimension]; of a state [kv heads, head size] of its keys.
using Axes = std::vector<std::vector<device::Axis>>;

// What grows from phase to phase. Owns nothing of the graph, which outlives it.
struct CardState {
  CardState(const graph::Graph& graph, RuleLog& log, BoundaryAxes given = {})
      : graph(graph), log(log), given(std::move(given)), by_entry(graph.values.size(), false) {}

  // What |value| is on the card with dimension |stick| in the stick. REQUIRES: axes.
  device::TensorSpec spec(graph::ValueId value, int stick) const;

  const graph::Graph& graph;
  RuleLog& log;
  BoundaryAxes given;          // what padding the graph's boundary has already
  std::vector<bool> by_entry;  // per value: lies in an entry_layout, not in the default one
  Layouts layouts;
  ExtentRelations relations;
  Axes axes;
  device::CardPlan plan;
  std::vector<bool> settled;  // per device operation: no later phase of work division changes it
};

}  // namespace spyre::compiler
