// What the IR knows of an operator: its name, attributes, numbered constraints, shape rule and reference evaluation.
//
// One operator (or one family whose members differ only in a scalar function) is one file in ops/. A constraint has a
// number; "matmul C2" is the same thing in the table below, in the message of the check and in the name of the negative
// test (TEST(Matmul, C2_...)). The table of all operators is read-only and lives as long as the process.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace spyre::graph {

struct EvalContext;  // interpreter.h

enum class AttrKind : uint8_t { kInt, kFloat, kString, kInts };

struct AttrDef {
  std::string_view name;
  AttrKind kind;
  std::optional<Attribute> default_value;  // none: the attribute is required
};

struct Constraint {
  std::string_view number;  // "C1"
  std::string_view text;    // "both operands are tensors of the same float dtype"
};

// How the operator treats its operands; compilers use it to treat whole families alike.
enum class OpFamily : uint8_t { kUnary, kBinary, kReduce, kNorm, kMatmul, kView, kGather, kCall, kOther };

struct InferInput {
  const Op& op;
  std::span<const Type> types;  // of op.inputs
};

struct OpDef {
  std::string_view name;
  OpFamily family;
  std::string_view summary;   // one line for the docs
  std::string_view operands;  // their names, for the docs: "x, weight"
  int min_inputs, max_inputs;
  std::vector<AttrDef> attributes;
  std::vector<Constraint> constraints;
  // The types of the results; checks every constraint (violate() below).
  std::vector<Type> (*infer)(const InferInput&);
  void (*evaluate)(EvalContext&);
};

SPYRE_API std::span<const OpDef* const> all_ops();
SPYRE_API const OpDef* find_op(std::string_view name);   // null when unknown
SPYRE_API const OpDef& op_named(std::string_view name);  // throws kInvalidArgument with near names

// The types of the results of |op|, whose def, inputs and attributes are filled in: checks the number of operands and
// the attributes (all present, sorted, of the right kind, floats finite in fp32), then calls the shape rule and
// validates its answer. Throws Error(kInvalidArgument).
SPYRE_API std::vector<Type> infer_types(const Op& op, std::span<const Type> operand_types);

SPYRE_API std::string_view to_string(AttrKind kind);
SPYRE_API std::string_view to_string(OpFamily family);

// Throws Error(kInvalidArgument, "matmul C2: K of x is 576, K of w is 577"). |number| must be in the table.
[[noreturn]] SPYRE_API void violate(const Op& op, std::string_view number, const std::string& detail);

}  // namespace spyre::graph
