// The graph IR: SSA values, and operators in an order in which every operand is defined before its use.
//
// A Graph is plain data: built by Builder (or parsed from text), checked by verify(), rewritten by passes, read by the
// interpreter and by compilers. It owns everything it refers to by index; copying it copies it whole. Not thread-safe
// for writing.
//
// Values come from five places: inputs (given at each run), parameters (weights, bound once per layer), states (a KV
// cache, bound per layer; an operator that changes one returns a *new* state value, which orders the effects),
// constants are written as operator attributes, and operator results.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/export.h"
#include "graph/type.h"

namespace spyre::graph {

using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;

enum class Role : uint8_t { kInput, kParameter, kState, kResult };

// How the elements of a parameter are stored. Only dense is built; the others keep their place in the format.
enum class Encoding : uint8_t { kDense, kGroupedInt, kFp8 };

SPYRE_API std::string_view to_string(Encoding encoding);  // "dense", "grouped_int", "fp8"

struct Value {
  std::string name;  // unique in the graph, without '%': letters, digits and "_.-/"
  Type type;
  Role role = Role::kResult;
  Encoding encoding = Encoding::kDense;
  int32_t producer = -1;  // index of the operator that defines it, for Role::kResult
};

using Attribute = std::variant<int64_t, double, std::string, std::vector<int64_t>>;

struct NamedAttribute {
  std::string name;
  Attribute value;
  bool operator==(const NamedAttribute&) const = default;
};

struct OpDef;

struct SPYRE_API Op {
  const OpDef* def = nullptr;
  std::vector<ValueId> inputs;  // a trailing optional operand that is absent is left out
  std::vector<ValueId> outputs;
  std::vector<NamedAttribute>
      attributes;  // sorted by name; every attribute of the OpDef is present (defaults filled in)

  std::string_view name() const;
  int64_t int_attr(std::string_view name) const;
  double float_attr(std::string_view name) const;
  const std::string& string_attr(std::string_view name) const;
  const std::vector<int64_t>& ints_attr(std::string_view name) const;
};

struct SPYRE_API Graph {
  std::string name = "graph";
  std::vector<Value> values;
  std::vector<Op> ops;
  std::vector<ValueId> inputs, parameters, states;  // in order of declaration
  std::vector<ValueId> outputs;

  const Value& value(ValueId id) const { return values[id]; }
  const Type& type(ValueId id) const { return values[id].type; }
  std::optional<ValueId> find(std::string_view value_name) const;

  // Users of each value: indices into ops, ascending, each once. Recomputed on each call: O(ops).
  std::vector<std::vector<int32_t>> users() const;
};

// Checks the whole graph: definitions before uses, unique names, types equal to what the shape rules infer, every
// constraint of every operator, states used linearly (a state value is replaced at most once and not read after that),
// outputs defined and tensors (the last value of a state needs no output: its effect is in the bound cache). Throws
// Error(kInvalidArgument) that names the operator, the constraint and the numbers.
SPYRE_API void verify(const Graph& graph);

// Drops operators whose results nobody needs (an operator that returns a state is always needed), and renumbers values:
// inputs, parameters, states, then results in order. What a pass calls after it has rewired operands or erased
// operators; it repairs Value::producer and needs only that the operands of each operator exist. Inputs, parameters and
// states stay.
SPYRE_API void compact(Graph& graph);

SPYRE_API bool is_value_name(std::string_view name);

// A text that is equal for two graphs exactly when they are equal up to names: values are renumbered in order of
// definition. It is the key under which equal blocks share one compiled artifact.
SPYRE_API std::string canonical_text(const Graph& graph);

}  // namespace spyre::graph
