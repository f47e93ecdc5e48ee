// Graphs of no known architecture, written as text files in tests/data/graphs, through the same path as a model's
// blocks.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "base/cpu.h"
#include "base/error.h"
#include "base/vector_math.h"
#include "graph/text.h"
#include "plugins/spyre/compiler/compiler.h"
#include "plugins/spyre/testing/device_run.h"

namespace spyre::compiler {
namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

graph::Array random_array(const graph::Type& type, std::mt19937& random) {
  std::normal_distribution<float> normal(0, type.rank() > 1 ? 0.2f : 1.0f);
  std::vector<float> values(static_cast<size_t>(type.elements()));
  for (float& v : values) v = round_to(type.dtype, normal(random));
  return graph::Array::of(type, std::move(values));
}

class TextGraphs : public ::testing::TestWithParam<const char*> {};

TEST_P(TextGraphs, EqualTheExactInterpreter) {
  const graph::Graph g = graph::parse(read(std::filesystem::path(SPYRE_TEST_DATA) / "graphs" / GetParam()));
  std::mt19937 random(11);
  graph::Bindings bindings;
  for (graph::ValueId id : g.inputs) bindings.inputs.push_back(random_array(g.type(id), random));
  for (graph::ValueId id : g.parameters) bindings.parameters.push_back(random_array(g.type(id), random));
  for (const DotOrder order : {DotOrder::kPair, DotOrder::kTile}) {
    ScopedFlushDenormals flush;
    const auto expected = graph::Interpreter(graph::EvalMode::kExact, order).run(g, bindings);
    for (const auto mode : {device::ExecutionMode::kHost, device::ExecutionMode::kChecked}) {
      device::SoftwareDevice device(
          {.mode = mode, .features = CpuFeatures::detected(), .bf16_order = order, .threads = 2});
      Compiler compiler({.features = CpuFeatures::detected(), .bf16_order = order, .threads = 2});
      const auto program = compiler.compile(g);
      const auto results = testing::run_on_device(device, *program, bindings);
      for (size_t i = 0; i < results.size(); ++i) {
        size_t where = 0;
        EXPECT_TRUE(testing::equal_bits(results[i], expected[i].floats(), &where))
            << (mode == device::ExecutionMode::kHost ? "host" : "checked") << " output " << i << " element " << where;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, TextGraphs, ::testing::Values("gelu_two_mlps.graph", "heads_by_matmul.graph"),
                         [](const auto& info) {
                           const std::string name = info.param;
                           return name.substr(0, name.find('.'));
                         });

// Live rows below the bucket: the rows that are live have the bits of a graph of that size.
TEST(TextGraphs, LiveRowsBelowTheBucketHaveEqualBits) {
  const graph::Graph g = graph::parse(read(std::filesystem::path(SPYRE_TEST_DATA) / "graphs" / "gelu_two_mlps.graph"));
  std::mt19937 random(12);
  graph::Bindings bindings;
  for (graph::ValueId id : g.inputs) bindings.inputs.push_back(random_array(g.type(id), random));
  for (graph::ValueId id : g.parameters) bindings.parameters.push_back(random_array(g.type(id), random));
  device::SoftwareDevice device({.features = CpuFeatures::detected(), .threads = 2});
  Compiler compiler({.features = CpuFeatures::detected(), .threads = 2});
  const auto program = compiler.compile(g);
  const auto whole = testing::run_on_device(device, *program, bindings);
  for (int64_t live : {1, 2, 7, 23}) {
    const auto some = testing::run_on_device(device, *program, bindings, live);
    for (size_t i = 0; i < whole.size(); ++i) {
      ASSERT_LT(some[i].size(), whole[i].size());
      EXPECT_TRUE(testing::equal_bits(some[i], std::span(whole[i]).first(some[i].size()))) << live << " rows";
    }
  }
}

// The compiler knows operators, never models.
TEST(Compiler, NamesNoArchitecture) {
  const std::filesystem::path folder =
      std::filesystem::path(SPYRE_TEST_DATA).parent_path().parent_path() / "src/plugins/spyre/compiler";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().filename() == "text_graphs_test.cc") continue;
    std::string text = read(entry.path());
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    for (const char* name : {"llama", "smollm", "granite", "gemma", "qwen", "mistral", "bert"}) {
      EXPECT_EQ(text.find(name), std::string::npos) << entry.path() << " names " << name;
    }
  }
}

}  // namespace
}  // namespace spyre::compiler
