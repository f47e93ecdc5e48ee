#include "plugins/spyre/compiler/graph_passes.h"

#include <map>
#include <string>

#include <fmt/format.h>

#include "graph/op_def.h"
#include "graph/text.h"

namespace spyre::compiler {
bool remove_dead_ops(graph::Graph& graph) {
  const size_t before = graph.ops.size();
  graph::compact(graph);
  return graph.ops.size() != before;
}

bool share_equal_ops(graph::Graph& graph) {
  std::map<std::string, int32_t> seen;
  std::vector<graph::ValueId> same(graph.values.size());
  for (size_t v = 0; v < same.size(); ++v) same[v] = static_cast<graph::ValueId>(v);
  bool changed = false;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    graph::Op& op = graph.ops[i];
    for (graph::ValueId& input : op.inputs) input = same[input];
    if (op.def->family == graph::OpFamily::kCall) continue;
    std::string key(op.name());
    for (graph::ValueId input : op.inputs) key += fmt::format(" {}", input);
    for (const graph::NamedAttribute& a : op.attributes)
      key += fmt::format(" {}={}", a.name, graph::to_string(a.value));
    const auto [found, inserted] = seen.emplace(std::move(key), static_cast<int32_t>(i));
    if (inserted) continue;
    for (size_t o = 0; o < op.outputs.size(); ++o) same[op.outputs[o]] = graph.ops[found->second].outputs[o];
    changed = true;
  }
  if (!changed) return false;
  for (graph::ValueId& out : graph.outputs) out = same[out];
  graph::compact(graph);  // the doubles have no users left
  return true;
}

const std::vector<graph::Pass>& graph_passes() {
  static const std::vector<graph::Pass> passes = {
      {.name = "share-equal-ops", .run = share_equal_ops},
      {.name = "remove-dead-ops", .run = remove_dead_ops},
  };
  return passes;
}

}  // namespace spyre::compiler
