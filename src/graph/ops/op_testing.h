// What the tests of operators share: one operator from text, with constants in, and its results or its refusal out.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/interpreter.h"
#include "graph/text.h"

namespace spyre::graph::testing {

// The graph of one operator over operands of the given types: states and batches where the type says so.
inline std::string op_text(std::string_view op, const std::vector<std::string>& types,
                           std::string_view attributes = "") {
  std::string text = "graph t {\n", operands;
  for (size_t i = 0; i < types.size(); ++i) {
    text += fmt::format("  {} %a{} : {}\n", types[i].starts_with("kv ") ? "state" : "input", i, types[i]);
    operands += fmt::format("{}%a{}", i > 0 ? ", " : "", i);
  }
  return text + fmt::format("  %y = {}({}) {}\n  return %y\n}}\n", op, operands, attributes);
}

struct Operand {
  std::string type;
  std::vector<float> values;  // rounded to int32 for an i32 tensor
};

inline Array evaluate(std::string_view op, const std::vector<Operand>& operands, std::string_view attributes = "",
                      EvalMode mode = EvalMode::kExact, DotOrder order = DotOrder::kPair) {
  std::vector<std::string> types;
  for (const Operand& operand : operands) types.push_back(operand.type);
  const Graph graph = parse(op_text(op, types, attributes));
  Bindings bindings;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Type& type = graph.type(graph.inputs[i]);
    bindings.inputs.push_back(type.dtype == DType::kI32
                                  ? Array::of_ints(type, {operands[i].values.begin(), operands[i].values.end()})
                                  : Array::of(type, operands[i].values));
  }
  return Interpreter(mode, order).run(graph, bindings)[0];
}

inline std::vector<float> floats(const Array& array) {
  return {array.floats().begin(), array.floats().end()};
}

// The message with which an operator over these types is refused, without the line number.
inline std::string violation(std::string_view op, const std::vector<std::string>& types,
                             std::string_view attributes = "") {
  try {
    parse(op_text(op, types, attributes));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    const std::string message = error.what();
    return message.substr(message.find(": ") + 2);
  }
  return "no error";
}

}  // namespace spyre::graph::testing

// The operator must be refused by exactly this constraint: SPYRE_EXPECT_VIOLATION("matmul C3", violation(...)).
#define SPYRE_EXPECT_VIOLATION(label, message) EXPECT_THAT(message, ::testing::StartsWith(std::string(label) + ": "))
