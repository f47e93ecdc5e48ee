// Folds must not swallow a value that is read in another place, and gathers read from where their table lies.
#include <gtest/gtest.h>

#include <random>

#include "base/vector_math.h"
#include "graph/text.h"
#include "plugins/spyre/compiler/compiler.h"
#include "plugins/spyre/testing/device_run.h"

namespace spyre::compiler {
namespace {

class HostFolds : public ::testing::TestWithParam<const char*> {};

TEST_P(HostFolds, EqualTheExactInterpreter) {
  const graph::Graph g = graph::parse(GetParam());
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  graph::Bindings bindings;
  auto bind = [&](graph::ValueId id) {
    const graph::Type& type = g.type(id);
    if (type.dtype == DType::kI32) {
      std::vector<int32_t> ids(static_cast<size_t>(type.elements()));
      for (int32_t& i : ids) i = static_cast<int32_t>(random() % 3);
      return graph::Array::of_ints(type, std::move(ids));
    }
    std::vector<float> values(static_cast<size_t>(type.elements()));
    for (float& v : values) v = round_to(type.dtype, normal(random));
    return graph::Array::of(type, std::move(values));
  };
  for (graph::ValueId id : g.inputs) bindings.inputs.push_back(bind(id));
  for (graph::ValueId id : g.parameters) bindings.parameters.push_back(bind(id));
  ScopedFlushDenormals flush;
  const auto expected = graph::Interpreter(graph::EvalMode::kExact).run(g, bindings);
  device::SoftwareDevice device({.features = CpuFeatures::detected(), .threads = 2});
  Compiler compiler({.features = CpuFeatures::detected(), .threads = 2});
  const auto results = testing::run_on_device(device, *compiler.compile(g), bindings);
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_TRUE(testing::equal_bits(results[i], expected[i].floats())) << "output " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Graphs, HostFolds,
                         ::testing::Values(
                             R"(graph square_of_silu {
  input %x : f16[@4,64]
  %s = silu(%x)
  %y = mul(%s, %s)
  return %y
})",
                             R"(graph norm_by_itself {
  input %a : f16[64]
  input %b : f16[64]
  %s = add(%a, %b)
  %y = rms_norm(%s, %s) {eps=1e-05}
  return %y
})",
                             R"(graph silu_is_also_an_output {
  input %x : f16[@4,64]
  input %u : f16[@4,64]
  %s = silu(%x)
  %y = mul(%s, %u)
  return %y, %s
})",
                             R"(graph gather_from_a_slice {
  input %table : f16[9,64]
  input %ids : i32[@4]
  %part = slice(%table) {axis=0, start=3, size=5}
  %y = gather_rows(%part, %ids)
  return %y
})"));

}  // namespace
}  // namespace spyre::compiler
