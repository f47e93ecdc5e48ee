#include "plugins/spyre/compiler/split_operators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "base/vector_math.h"
#include "graph/interpreter.h"
#include "graph/random_graph.h"
#include "graph/text.h"
#include "plugins/spyre/compiler/compiler.h"
#include "plugins/spyre/testing/device_run.h"

namespace spyre::compiler {
namespace {

using ::testing::ElementsAre;

// Heads of 48: a rotary head is two halves of 24, each on a stick of its own.
const char* const kHeads = R"(graph g {
  input %x : f16[@5,96]
  input %t : f16[@5,48]
  param %w : f16[96,144]
  %p = matmul(%x, %w)
  %q = slice(%p) {axis=1, start=48, size=96}
  %h = reshape(%q) {shape=[-1,2,48]}
  %r = rotary(%h, %t)
  %s = silu(%p)
  return %r, %s
})";

std::vector<std::string> names(const std::vector<OperatorUnit>& units) {
  std::vector<std::string> all;
  for (const OperatorUnit& unit : units) all.push_back(unit.graph.name);
  return all;
}

TEST(SplitOperators, ViewsGoWithTheirReader) {
  const graph::Graph whole = graph::parse(kHeads);
  const std::vector<OperatorUnit> units = split_operators(whole);
  EXPECT_THAT(names(units), ElementsAre("matmul", "rotary", "silu"));
  const OperatorUnit& rotary = units[1];
  EXPECT_EQ(rotary.graph.ops.size(), 3u) << "slice, reshape, rotary";
  EXPECT_THAT(rotary.inputs, ElementsAre(*whole.find("p"), *whole.find("t")));
  EXPECT_THAT(rotary.outputs, ElementsAre(*whole.find("r")));
  EXPECT_THAT(units[0].parameters, ElementsAre(*whole.find("w")));
}

TEST(SplitOperators, AViewThatIsGivenOutIsAProgram) {
  const auto units = split_operators(graph::parse(
      "graph g {\n input %x : f16[4,64]\n %n = neg(%x)\n %y = reshape(%n) {shape=[4,1,64]}\n return %y\n}"));
  EXPECT_THAT(names(units), ElementsAre("neg", "reshape"));
}

// The product's columns are padded as the rotation that reads them wants it, and both programs agree.
TEST(SplitOperators, NeighboursArePaddedAlike) {
  const std::vector<OperatorUnit> units = split_operators(graph::parse(kHeads));
  Compiler compiler({.features = CpuFeatures::detected(), .verify_phases = true});
  const auto product = compiler.compile(units[0].graph, {.axes = units[0].axes});
  const auto rotary = compiler.compile(units[1].graph, {.axes = units[1].axes});
  EXPECT_EQ(product->output_specs[0].axes, rotary->input_specs[0].axes);
  EXPECT_EQ(product->output_specs[0].axes[1].card(), 64 + 2 * 128);
  EXPECT_EQ(product->parameter_specs[0].axes[1].card(), 64 + 2 * 128);
  EXPECT_EQ(rotary->output_specs[0].axes[2].card(), 128);
  // Alone, the product would be padded at its end.
  EXPECT_EQ(compiler.compile(units[0].graph)->output_specs[0].axes[1].card(), 192);
  EXPECT_EQ(compiler.artifacts(), 3) << "padding is part of what makes two programs equal";
}

// A store and what reads after it share a cache.
TEST(SplitOperators, StatesAreThoseThatWereDeclared) {
  const graph::Graph whole = graph::parse(R"(graph g {
  input %q : f16[@4,2,64]
  input %k : f16[@4,1,64]
  input %v : f16[@4,1,64]
  input %slots : i32[@4]
  input %batch : batch
  state %kv : kv f16[1,64]
  %kv1 = kv_store(%kv, %k, %v, %slots)
  %y = attention(%q, %kv1, %batch) {scale=0.125}
  return %y
})");
  const auto units = split_operators(whole);
  ASSERT_THAT(names(units), ElementsAre("kv_store", "attention"));
  for (const OperatorUnit& unit : units) EXPECT_THAT(unit.states, ElementsAre(*whole.find("kv")));
  EXPECT_TRUE(units[0].outputs.empty());
}

// Values of 48 lie in heads of 128, since the keys' halves take a stick each: padding beyond the end of a stick is
// given too.
TEST(SplitOperators, HeadsOfACacheKeepTheirWidth) {
  const graph::Graph whole = graph::parse(R"(graph g {
  input %q : f16[@4,2,48]
  input %k : f16[@4,1,48]
  input %x : f16[@4,64]
  input %t : f16[@4,48]
  input %slots : i32[@4]
  input %batch : batch
  param %w : f16[64,48]
  state %kv : kv f16[1,48]
  %p = matmul(%x, %w)
  %v = reshape(%p) {shape=[-1,1,48]}
  %r = rotary(%k, %t)
  %kv1 = kv_store(%kv, %r, %v, %slots)
  %y = attention(%q, %kv1, %batch) {scale=0.125}
  return %y
})");
  Compiler compiler({.features = CpuFeatures::detected(), .verify_phases = true});
  for (const OperatorUnit& unit : split_operators(whole)) {
    const auto program = compiler.compile(unit.graph, {.axes = unit.axes});
    for (size_t i = 0; i < unit.states.size(); ++i) EXPECT_EQ(program->state_specs[i].axes[1].card(), 128);
    for (size_t i = 0; i < unit.inputs.size(); ++i) {
      if (program->input_specs[i].axes.size() < 2 || unit.inputs[i] == *whole.find("x")) continue;
      EXPECT_EQ(program->input_specs[i].axes.back().card(), 128) << whole.value(unit.inputs[i]).name;
    }
    for (const device::TensorSpec& output : program->output_specs) EXPECT_EQ(output.axes.back().card(), 128);
    for (const device::TensorSpec& weight : program->parameter_specs) EXPECT_EQ(weight.axes.back().card(), 128);
  }
}

// Run one after the other they give what the whole gives, bit for bit, on logical and on card extents.
TEST(SplitOperators, RandomGraphsGiveTheSameBits) {
  int ran = 0;
  for (uint64_t seed = 500; seed < 620; ++seed) {
    const graph::RandomGraph random = graph::random_graph(seed, {.max_elements = 4000});
    Compiler compiler({.features = CpuFeatures::detected(), .threads = 1, .verify_phases = true});
    std::map<graph::ValueId, graph::Array> values;
    for (size_t i = 0; i < random.graph.inputs.size(); ++i) {
      values.emplace(random.graph.inputs[i], random.bindings.inputs[i]);
    }
    for (size_t i = 0; i < random.graph.parameters.size(); ++i) {
      values.emplace(random.graph.parameters[i], random.bindings.parameters[i]);
    }
    ScopedFlushDenormals flush;
    const auto expected = graph::Interpreter(graph::EvalMode::kExact).run(random.graph, random.bindings);
    try {
      for (const OperatorUnit& unit : split_operators(random.graph)) {
        const auto program = compiler.compile(unit.graph, {.axes = unit.axes});
        graph::Bindings bindings;
        for (const graph::ValueId v : unit.inputs) bindings.inputs.push_back(values.at(v));
        for (const graph::ValueId v : unit.parameters) bindings.parameters.push_back(values.at(v));
        device::SoftwareDevice device(
            {.mode = device::ExecutionMode::kChecked, .features = CpuFeatures::detected(), .threads = 1});
        const auto results = testing::run_on_device(device, *program, bindings);
        const auto exact = graph::Interpreter(graph::EvalMode::kExact).run(unit.graph, bindings);
        for (size_t o = 0; o < unit.outputs.size(); ++o) {
          if (exact[o].type().dtype != DType::kI32) {
            ASSERT_TRUE(testing::equal_bits(results[o], exact[o].floats()))
                << "seed " << seed << " " << unit.graph.name;
          }
          values.emplace(unit.outputs[o], exact[o]);
        }
      }
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kRuleViolation) << "seed " << seed << ": " << error.what();
      continue;
    }
    ++ran;
    for (size_t o = 0; o < random.graph.outputs.size(); ++o) {
      if (expected[o].type().dtype == DType::kI32) continue;
      ASSERT_TRUE(testing::equal_bits(values.at(random.graph.outputs[o]).floats(), expected[o].floats()))
          << "seed " << seed << "\n"
          << graph::print(random.graph);
    }
  }
  EXPECT_GT(ran, 70);
}

}  // namespace
}  // namespace spyre::compiler
