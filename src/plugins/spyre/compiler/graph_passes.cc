#include "plugins/spyre/compiler/graph_passes.h"

#include <algorithm>
#include <map>
#include <string>

#include <fmt/format.h>

#include "graph/op_def.h"
#include "graph/text.h"

namespace spyre::compiler {
namespace {

// Drops the operators that are not |kept| and renumbers producers. Values of dropped operators lose their producer and
// are removed from the value table.
void keep_ops(graph::Graph& graph, const std::vector<bool>& kept) {
  std::vector<bool> live(graph.values.size(), true);
  std::vector<graph::Op> ops;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (kept[i]) {
      ops.push_back(std::move(graph.ops[i]));
    } else {
      for (graph::ValueId out : graph.ops[i].outputs) live[out] = false;
    }
  }
  std::vector<graph::ValueId> renumbered(graph.values.size(), graph::kNoValue);
  std::vector<graph::Value> values;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (!live[v]) continue;
    renumbered[v] = static_cast<graph::ValueId>(values.size());
    values.push_back(std::move(graph.values[v]));
  }
  auto renumber = [&](std::vector<graph::ValueId>& ids) {
    for (graph::ValueId& id : ids) id = renumbered[id];
  };
  for (size_t i = 0; i < ops.size(); ++i) {
    renumber(ops[i].inputs);
    renumber(ops[i].outputs);
    for (graph::ValueId out : ops[i].outputs) values[out].producer = static_cast<int32_t>(i);
  }
  graph.ops = std::move(ops);
  graph.values = std::move(values);
  for (auto* list : {&graph.inputs, &graph.parameters, &graph.states, &graph.outputs}) renumber(*list);
}

}  // namespace

bool remove_dead_ops(graph::Graph& graph) {
  std::vector<bool> needed(graph.values.size(), false), kept(graph.ops.size(), false);
  for (graph::ValueId out : graph.outputs) needed[out] = true;
  bool all = true;
  for (size_t i = graph.ops.size(); i-- > 0;) {
    const graph::Op& op = graph.ops[i];
    const bool writes_state = std::any_of(op.outputs.begin(), op.outputs.end(), [&](graph::ValueId out) {
      return graph.type(out).kind == graph::TypeKind::kKvCache;
    });
    kept[i] = writes_state ||
              std::any_of(op.outputs.begin(), op.outputs.end(), [&](graph::ValueId out) { return needed[out]; });
    all = all && kept[i];
    if (kept[i]) {
      for (graph::ValueId input : op.inputs) needed[input] = true;
    }
  }
  if (!all) keep_ops(graph, kept);
  return !all;
}

bool share_equal_ops(graph::Graph& graph) {
  std::map<std::string, int32_t> seen;
  std::vector<bool> kept(graph.ops.size(), true);
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
    kept[i] = false;
    changed = true;
  }
  if (!changed) return false;
  for (graph::ValueId& out : graph.outputs) out = same[out];
  keep_ops(graph, kept);
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
