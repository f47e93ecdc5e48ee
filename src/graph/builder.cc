#include "graph/builder.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "graph/op_def.h"

namespace spyre::graph {
namespace {

// Fills in defaults and sorts. Unknown and missing attributes are infer_types' business.
void complete_attributes(Op& op) {
  for (const AttrDef& def : op.def->attributes) {
    const bool present = std::any_of(op.attributes.begin(), op.attributes.end(),
                                     [&](const NamedAttribute& attribute) { return attribute.name == def.name; });
    if (!present && def.default_value) op.attributes.push_back({std::string(def.name), *def.default_value});
  }
  std::sort(op.attributes.begin(), op.attributes.end(),
            [](const NamedAttribute& a, const NamedAttribute& b) { return a.name < b.name; });
}

// A negative axis is recorded as the axis it means, so that equal graphs have equal text.
void normalise_axis(Op& op, const Type& first) {
  for (NamedAttribute& attribute : op.attributes) {
    int64_t* axis = std::get_if<int64_t>(&attribute.value);
    if (attribute.name == "axis" && axis != nullptr && *axis < 0 && *axis >= -first.rank()) *axis += first.rank();
  }
}

}  // namespace

Builder::Builder(std::string name) {
  if (!is_value_name(name)) throw_error(ErrorCode::kInvalidArgument, "'{}' is not a graph name", name);
  graph_.name = std::move(name);
}

ValueId Builder::add_value(Value value) {
  const auto id = static_cast<ValueId>(graph_.values.size());
  if (!is_value_name(value.name)) {
    throw_error(ErrorCode::kInvalidArgument, "'{}' is not a value name: letters, digits and _ . - / are", value.name);
  }
  if (!names_.emplace(value.name, id).second) {
    throw_error(ErrorCode::kInvalidArgument, "value %{} is defined twice", value.name);
  }
  graph_.values.push_back(std::move(value));
  return id;
}

std::string Builder::next_name() {
  std::string name;
  do {
    name = std::to_string(next_number_++);
  } while (names_.contains(name));
  return name;
}

ValueId Builder::declare(std::string name, Type type, Role role) {
  type.validate();
  return add_value({.name = std::move(name), .type = std::move(type), .role = role});
}

ValueId Builder::input(std::string name, Type type) {
  if (type.is_state())
    throw_error(ErrorCode::kInvalidArgument, "input %{} has a state type {}", name, type.to_string());
  graph_.inputs.push_back(declare(std::move(name), std::move(type), Role::kInput));
  return graph_.inputs.back();
}

ValueId Builder::parameter(std::string name, Type type, Encoding encoding) {
  if (!type.is_tensor() || type.rows_axis() >= 0) {
    throw_error(ErrorCode::kInvalidArgument, "parameter %{} must be a tensor without rows, not {}", name,
                type.to_string());
  }
  graph_.parameters.push_back(declare(std::move(name), std::move(type), Role::kParameter));
  graph_.values.back().encoding = encoding;
  return graph_.parameters.back();
}

ValueId Builder::state(std::string name, Type type) {
  if (!type.is_state()) {
    throw_error(ErrorCode::kInvalidArgument, "state %{} must have a state type, not {}", name, type.to_string());
  }
  graph_.states.push_back(declare(std::move(name), std::move(type), Role::kState));
  return graph_.states.back();
}

void Builder::output(ValueId value) {
  if (value < 0 || value >= static_cast<ValueId>(graph_.values.size())) {
    throw_error(ErrorCode::kInvalidArgument, "output {} is not a value of the graph", value);
  }
  graph_.outputs.push_back(value);
}

std::vector<ValueId> Builder::op(std::string_view name, std::vector<ValueId> inputs,
                                 std::vector<NamedAttribute> attributes, std::vector<std::string> result_names) {
  Op op{.def = &op_named(name), .inputs = std::move(inputs), .outputs = {}, .attributes = std::move(attributes)};
  std::vector<Type> operand_types;
  for (const ValueId id : op.inputs) {
    if (id < 0 || id >= static_cast<ValueId>(graph_.values.size())) {
      throw_error(ErrorCode::kInvalidArgument, "{}: operand {} is not a value of the graph", name, id);
    }
    operand_types.push_back(graph_.values[id].type);
  }
  complete_attributes(op);
  if (!operand_types.empty()) normalise_axis(op, operand_types.front());
  std::vector<Type> types = infer_types(op, operand_types);
  if (!result_names.empty() && result_names.size() != types.size()) {
    throw_error(ErrorCode::kInvalidArgument, "{} has {} results, {} are named", name, types.size(),
                result_names.size());
  }
  const auto index = static_cast<int32_t>(graph_.ops.size());
  for (size_t i = 0; i < types.size(); ++i) {
    op.outputs.push_back(add_value({.name = result_names.empty() ? next_name() : std::move(result_names[i]),
                                    .type = std::move(types[i]),
                                    .role = Role::kResult,
                                    .producer = index}));
  }
  graph_.ops.push_back(std::move(op));
  return graph_.ops.back().outputs;
}

ValueId Builder::op1(std::string_view name, std::vector<ValueId> inputs, std::vector<NamedAttribute> attributes) {
  return op(name, std::move(inputs), std::move(attributes)).front();
}

ValueId Builder::attention(ValueId q, ValueId state, ValueId batch, double scale, double softcap, int64_t window) {
  return op1("attention", {q, state, batch}, {{"scale", scale}, {"softcap", softcap}, {"window", window}});
}

std::optional<ValueId> Builder::find(const std::string& value_name) const {
  const auto it = names_.find(value_name);
  return it == names_.end() ? std::nullopt : std::optional(it->second);
}

Graph Builder::finish() {
  verify(graph_);
  names_.clear();
  next_number_ = 0;
  return std::exchange(graph_, Graph{});
}

}  // namespace spyre::graph
