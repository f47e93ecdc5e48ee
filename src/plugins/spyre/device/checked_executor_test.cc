#include "plugins/spyre/device/checked_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <optional>

#include "base/error.h"
#include "graph/random_graph.h"
#include "graph/text.h"
#include "plugins/spyre/compiler/compiler.h"
#include "plugins/spyre/testing/device_run.h"

namespace spyre::device {
namespace {

DeviceOptions options_for(ExecutionMode mode, DotOrder order) {
  return {.mode = mode, .features = CpuFeatures::detected(), .bf16_order = order, .threads = 1};
}

compiler::Compiler compiler_for(DotOrder order) {
  return compiler::Compiler({.features = CpuFeatures::detected(), .bf16_order = order, .threads = 1});
}

// Compiles, or counts the rule that refuses.
std::shared_ptr<const Program> compile(compiler::Compiler& compiler, const graph::Graph& graph,
                                       std::map<std::string, int>& refused) {
  try {
    return compiler.compile(graph);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRuleViolation) << error.what() << "\n" << graph::print(graph);
    ++refused[std::string(error.what()).substr(0, 4)];
    return nullptr;
  }
}

void print(const std::map<std::string, int>& refused, int lowered) {
  for (const auto& [rule, count] : refused) std::cout << rule << " refused " << count << " graphs\n";
  std::cout << lowered << " graphs lowered\n";
}

TEST(CheckedExecutor, RandomGraphsEqualTheExactInterpreter) {
  std::map<std::string, int> refused;
  int lowered = 0;
  for (uint64_t seed = 0; seed < 1200; ++seed) {
    const graph::RandomGraph random = graph::random_graph(seed);
    const DotOrder order = seed % 2 == 0 ? DotOrder::kPair : DotOrder::kTile;
    SoftwareDevice device(options_for(ExecutionMode::kChecked, order));
    compiler::Compiler compiler = compiler_for(order);
    const auto program = compile(compiler, random.graph, refused);
    if (program == nullptr) continue;
    ++lowered;
    const auto expected = graph::Interpreter(graph::EvalMode::kExact, order).run(random.graph, random.bindings);
    const auto results = testing::run_on_device(device, *program, random.bindings);
    ASSERT_EQ(results.size(), expected.size());
    for (size_t i = 0; i < results.size(); ++i) {
      if (expected[i].type().dtype == DType::kI32) continue;
      size_t where = 0;
      ASSERT_TRUE(testing::equal_bits(results[i], expected[i].floats(), &where))
          << "seed " << seed << " output " << i << " element " << where << ": " << results[i][where] << " is not "
          << expected[i].floats()[where] << "\n"
          << graph::print(program->graph);
    }
  }
  print(refused, lowered);
  EXPECT_GT(lowered, 600);
}

// Some of the rows live: host and checked mode agree, and both with the rows of a run in which all live.
TEST(CheckedExecutor, LiveRowsEqualTheHostPlan) {
  std::map<std::string, int> refused;
  int compared = 0;
  for (uint64_t seed = 2000; seed < 2400; ++seed) {
    const graph::RandomGraph random = graph::random_graph(seed);
    int64_t bucket = 0;
    bool leading = true;
    for (graph::ValueId input : random.graph.inputs) {
      const graph::Type& type = random.graph.type(input);
      if (type.rows_axis() < 0) continue;
      bucket = type.extent(type.rows_axis());
      leading = leading && type.rows_axis() == 0;
    }
    if (bucket < 2 || !leading) continue;
    const int64_t live = 1 + static_cast<int64_t>(seed) % (bucket - 1);
    compiler::Compiler compiler = compiler_for(DotOrder::kPair);
    const auto program = compile(compiler, random.graph, refused);
    if (program == nullptr) continue;
    SoftwareDevice checked(options_for(ExecutionMode::kChecked, DotOrder::kPair));
    SoftwareDevice host(options_for(ExecutionMode::kHost, DotOrder::kPair));
    const auto a = testing::run_on_device(checked, *program, random.bindings, live);
    const auto b = testing::run_on_device(host, *program, random.bindings, live);
    const auto whole = graph::Interpreter(graph::EvalMode::kExact).run(random.graph, random.bindings);
    for (size_t i = 0; i < a.size(); ++i) {
      const graph::Type& type = random.graph.type(random.graph.outputs[i]);
      if (type.rows_axis() != 0 || type.dtype == DType::kI32) continue;
      EXPECT_TRUE(testing::equal_bits(a[i], b[i])) << "seed " << seed << "\n" << graph::print(random.graph);
      EXPECT_TRUE(testing::equal_bits(a[i], whole[i].floats().first(a[i].size()))) << "seed " << seed;
      ++compared;
    }
  }
  EXPECT_GT(compared, 100);
}

// What nobody computed is poison: rows that are not live, and the padding of every stick.
TEST(CheckedExecutor, PaddingAndDeadRowsStayPoison) {
  const graph::Graph graph = graph::parse("graph g {\n input %x : f16[@4,100]\n %y = neg(%x)\n return %y\n}");
  compiler::Compiler compiler = compiler_for(DotOrder::kPair);
  const auto program = compiler.compile(graph);
  SoftwareDevice device(options_for(ExecutionMode::kChecked, DotOrder::kPair));
  Launch launch{.program = program.get(),
                .inputs = {device.allocate(program->input_specs[0], "test")},
                .outputs = {device.allocate(program->output_specs[0], "test")}};
  const std::vector<uint16_t> ones(400, 0x3c00);
  device.upload(launch.inputs[0], ones.data(), "test");
  const int64_t rows = 3;
  device.run(launch, rows, nullptr);
  const auto* words = reinterpret_cast<const uint16_t*>(launch.outputs[0]->memory.data());
  const Layout& layout = launch.outputs[0]->spec.layout;
  for (int64_t row = 0; row < 4; ++row) {
    for (int64_t column = 0; column < 128; ++column) {
      const uint16_t word = words[layout.offset(std::vector<int64_t>{row, column})];
      EXPECT_EQ(word, row < rows && column < 100 ? 0xbc00 : 0x7fff) << row << ", " << column;
    }
  }
}

TEST(Rules, L22_DeviceMemory) {
  DeviceMemory memory(1 << 20);
  const auto half = memory.reserve(1 << 19, "weights");
  EXPECT_EQ(memory.used(), 1 << 19);
  try {
    memory.reserve((1 << 19) + 1, "weights");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRuleViolation);
    EXPECT_EQ(std::string(error.what()).substr(0, 4), "L-22");
  }
}

// A tensor that lies otherwise than the program expects is named, not misread.
TEST(CheckedExecutor, RefusesATensorThatLiesOtherwise) {
  const graph::Graph graph = graph::parse("graph g {\n input %x : f16[4,128]\n %y = neg(%x)\n return %y\n}");
  compiler::Compiler compiler = compiler_for(DotOrder::kPair);
  const auto program = compiler.compile(graph);
  SoftwareDevice device(options_for(ExecutionMode::kChecked, DotOrder::kPair));
  const auto narrow = TensorSpec::with_axes(DType::kF16, {Axis(4), Axis({{2, 64, 128, false}})});
  Launch launch{.program = program.get(),
                .inputs = {device.allocate(narrow, "test")},
                .outputs = {device.allocate(program->output_specs[0], "test")}};
  const int64_t rows = 4;
  try {
    device.run(launch, rows, nullptr);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("%x"));
  }
}

}  // namespace
}  // namespace spyre::device
