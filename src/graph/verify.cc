#include <fmt/format.h>

#include <unordered_set>

#include "base/error.h"
#include "graph/graph.h"
#include "graph/op_def.h"

namespace spyre::graph {
namespace {

constexpr auto kCode = ErrorCode::kInvalidArgument;

class Verifier {
 public:
  explicit Verifier(const Graph& graph)
      : graph_(graph), defined_(graph.values.size(), false), replaced_by_(graph.values.size(), -1) {}

  void run() {
    check_values();
    check_sources(graph_.inputs, Role::kInput, "inputs");
    check_sources(graph_.parameters, Role::kParameter, "parameters");
    check_sources(graph_.states, Role::kState, "states");
    for (size_t i = 0; i < graph_.ops.size(); ++i) check_op(static_cast<int32_t>(i));
    check_every_value_defined();
    check_outputs();
  }

 private:
  std::string name(ValueId id) const { return "%" + graph_.values[id].name; }
  bool in_range(ValueId id) const { return id >= 0 && id < static_cast<ValueId>(graph_.values.size()); }

  void check_values() {
    std::unordered_set<std::string_view> names;
    if (!is_value_name(graph_.name)) throw_error(kCode, "'{}' is not a graph name", graph_.name);
    for (const Value& value : graph_.values) {
      if (!is_value_name(value.name)) throw_error(kCode, "'{}' is not a value name", value.name);
      if (!names.insert(value.name).second) throw_error(kCode, "value %{} is defined twice", value.name);
      value.type.validate();
    }
  }

  void check_sources(const std::vector<ValueId>& ids, Role role, std::string_view list) {
    for (const ValueId id : ids) {
      if (!in_range(id)) throw_error(kCode, "{}: {} is not a value of the graph", list, id);
      const Value& value = graph_.values[id];
      if (value.role != role || value.producer != -1) {
        throw_error(kCode, "{}: value %{} has another role or a producer", list, value.name);
      }
      const bool fits = role == Role::kState   ? value.type.is_state()
                        : role == Role::kInput ? !value.type.is_state()
                                               : value.type.is_tensor() && value.type.rows_axis() < 0;
      if (!fits) throw_error(kCode, "{}: value %{} cannot be of type {}", list, value.name, value.type.to_string());
      define(id);
    }
  }

  void define(ValueId id) {
    if (defined_[id]) throw_error(kCode, "value {} is defined twice", name(id));
    defined_[id] = true;
  }

  void check_op(int32_t index) {
    const Op& op = graph_.ops[index];
    if (op.def == nullptr) throw_error(kCode, "operator {} has no definition", index);
    std::vector<Type> types;
    for (const ValueId id : op.inputs) {
      if (!in_range(id)) throw_error(kCode, "operator {} ({}): operand {} is not a value", index, op.name(), id);
      if (!defined_[id]) throw_error(kCode, "{} reads {} before it is defined", op.name(), name(id));
      if (replaced_by_[id] >= 0) {
        throw_error(kCode, "{} reads the state {} after {} (operator {}) replaced it", op.name(), name(id),
                    graph_.ops[replaced_by_[id]].name(), replaced_by_[id]);
      }
      types.push_back(graph_.type(id));
    }
    const std::vector<Type> inferred = infer_types(op, types);
    if (inferred.size() != op.outputs.size()) {
      throw_error(kCode, "operator {} ({}) has {} results, {} are listed", index, op.name(), inferred.size(),
                  op.outputs.size());
    }
    bool returns_state = false;
    for (size_t i = 0; i < inferred.size(); ++i) {
      check_result(op, index, op.outputs[i], inferred[i]);
      returns_state = returns_state || inferred[i].is_state();
    }
    if (!returns_state) return;
    for (const ValueId id : op.inputs) {
      if (graph_.type(id).is_state()) replaced_by_[id] = index;
    }
  }

  void check_result(const Op& op, int32_t index, ValueId id, const Type& inferred) {
    if (!in_range(id)) throw_error(kCode, "operator {} ({}): result {} is not a value", index, op.name(), id);
    const Value& value = graph_.values[id];
    if (value.role != Role::kResult || value.producer != index) {
      throw_error(kCode, "result {} of {} has another role or producer ({}, not {})", name(id), op.name(),
                  value.producer, index);
    }
    if (value.type != inferred) {
      throw_error(kCode, "result {} of {} is declared {}, its operands give {}", name(id), op.name(),
                  value.type.to_string(), inferred.to_string());
    }
    define(id);
  }

  void check_every_value_defined() const {
    for (size_t id = 0; id < defined_.size(); ++id) {
      if (!defined_[id]) throw_error(kCode, "value {} is in no list and no operator defines it", name(id));
    }
  }

  void check_outputs() const {
    for (const ValueId id : graph_.outputs) {
      if (!in_range(id)) throw_error(kCode, "output {} is not a value of the graph", id);
      if (!graph_.type(id).is_tensor()) {
        throw_error(kCode, "output {} is {}; outputs are tensors", name(id), graph_.type(id).to_string());
      }
    }
  }

  const Graph& graph_;
  std::vector<bool> defined_;
  std::vector<int32_t> replaced_by_;  // per value: the operator that returned a newer state, or -1
};

}  // namespace

void verify(const Graph& graph) {
  Verifier(graph).run();
}

}  // namespace spyre::graph
