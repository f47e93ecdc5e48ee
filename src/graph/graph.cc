#include "graph/graph.h"

#include <algorithm>

#include "base/error.h"
#include "graph/op_def.h"

namespace spyre::graph {
namespace {

template <typename T>
const T& attribute_of(const Op& op, std::string_view name) {
  const auto it = std::find_if(op.attributes.begin(), op.attributes.end(),
                               [&](const NamedAttribute& attribute) { return attribute.name == name; });
  SPYRE_CHECK(it != op.attributes.end(), "{} has no attribute '{}'", op.name(), name);
  const T* value = std::get_if<T>(&it->value);
  SPYRE_CHECK(value != nullptr, "attribute '{}' of {} is of another kind", name, op.name());
  return *value;
}

bool returns_state(const Graph& graph, const Op& op) {
  return std::any_of(op.outputs.begin(), op.outputs.end(), [&](ValueId id) { return graph.type(id).is_state(); });
}

// live[i]: operator i returns a state, or a value that an output or a live operator reads.
std::vector<bool> live_ops(const Graph& graph) {
  std::vector<bool> wanted(graph.values.size(), false), live(graph.ops.size(), false);
  for (const ValueId id : graph.outputs) wanted[id] = true;
  for (size_t i = graph.ops.size(); i-- > 0;) {
    const Op& op = graph.ops[i];
    live[i] = returns_state(graph, op) ||
              std::any_of(op.outputs.begin(), op.outputs.end(), [&](ValueId id) { return wanted[id]; });
    if (!live[i]) continue;
    for (const ValueId id : op.inputs) wanted[id] = true;
  }
  return live;
}

}  // namespace

std::string_view to_string(Encoding encoding) {
  switch (encoding) {
    case Encoding::kDense:
      return "dense";
    case Encoding::kGroupedInt:
      return "grouped_int";
    case Encoding::kFp8:
      return "fp8";
  }
  return "?";
}

std::string_view Op::name() const {
  return def == nullptr ? std::string_view("?") : def->name;
}
int64_t Op::int_attr(std::string_view name) const {
  return attribute_of<int64_t>(*this, name);
}
double Op::float_attr(std::string_view name) const {
  return attribute_of<double>(*this, name);
}
const std::string& Op::string_attr(std::string_view name) const {
  return attribute_of<std::string>(*this, name);
}
const std::vector<int64_t>& Op::ints_attr(std::string_view name) const {
  return attribute_of<std::vector<int64_t>>(*this, name);
}

std::optional<ValueId> Graph::find(std::string_view value_name) const {
  for (size_t id = 0; id < values.size(); ++id) {
    if (values[id].name == value_name) return static_cast<ValueId>(id);
  }
  return std::nullopt;
}

std::vector<std::vector<int32_t>> Graph::users() const {
  std::vector<std::vector<int32_t>> result(values.size());
  for (size_t i = 0; i < ops.size(); ++i) {
    for (const ValueId id : ops[i].inputs) {
      std::vector<int32_t>& list = result[id];
      if (list.empty() || list.back() != static_cast<int32_t>(i)) list.push_back(static_cast<int32_t>(i));
    }
  }
  return result;
}

bool is_value_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-' || c == '/';
  };
  return !name.empty() && std::all_of(name.begin(), name.end(), allowed);
}

void compact(Graph& graph) {
  const std::vector<bool> live = live_ops(graph);
  Graph result;
  result.name = graph.name;
  std::vector<ValueId> renumbered(graph.values.size(), kNoValue);
  const auto move_value = [&](ValueId id, int32_t producer) {
    renumbered[id] = static_cast<ValueId>(result.values.size());
    result.values.push_back(std::move(graph.values[id]));
    result.values.back().producer = producer;
    return renumbered[id];
  };
  for (const ValueId id : graph.inputs) result.inputs.push_back(move_value(id, -1));
  for (const ValueId id : graph.parameters) result.parameters.push_back(move_value(id, -1));
  for (const ValueId id : graph.states) result.states.push_back(move_value(id, -1));
  const auto renumber = [&](ValueId& id) {
    SPYRE_CHECK(renumbered[id] != kNoValue, "value {} is used before it is defined", id);
    id = renumbered[id];
  };
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (!live[i]) continue;
    Op& op = graph.ops[i];
    for (ValueId& id : op.inputs) renumber(id);
    for (ValueId& id : op.outputs) id = move_value(id, static_cast<int32_t>(result.ops.size()));
    result.ops.push_back(std::move(op));
  }
  result.outputs = std::move(graph.outputs);
  for (ValueId& id : result.outputs) renumber(id);
  graph = std::move(result);
}

}  // namespace spyre::graph
