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
})",
                             R"(graph two_norms_of_one_sum {
  input %a : f16[@4,64]
  input %b : f16[@4,64]
  param %v : f16[64]
  param %w : f16[64]
  %s = add(%a, %b)
  %x = rms_norm(%s, %v) {eps=1e-05}
  %y = rms_norm(%s, %w) {eps=1e-05}
  return %x, %y
})",
                             R"(graph wide_residual {
  input %x : f16[@5,72]
  input %r : f32[@5,72]
  param %w : f16[72]
  %x32 = convert(%x) {dtype="f32"}
  %s = add(%x32, %r)
  %w32 = convert(%w) {dtype="f32"}
  %n = rms_norm(%s, %w32) {eps=1e-05}
  %y = convert(%n) {dtype="f16"}
  return %y, %s
})",
                             R"(graph wide_residual_begins {
  input %x : bf16[@5,72]
  param %w : bf16[72]
  %s = convert(%x) {dtype="f32"}
  %w32 = convert(%w) {dtype="f32"}
  %n = rms_norm(%s, %w32) {eps=1e-05}
  %y = convert(%n) {dtype="bf16"}
  return %y, %s
})",
                             R"(graph wide_norm_is_an_output {
  input %x : bf16[@5,72]
  input %r : f32[@5,72]
  param %w : bf16[72]
  %x32 = convert(%x) {dtype="f32"}
  %s = add(%r, %x32)
  %w32 = convert(%w) {dtype="f32"}
  %n = rms_norm(%s, %w32) {eps=1e-05}
  %y = convert(%n) {dtype="bf16"}
  return %y, %n
})",
                             R"(graph two_wide_norms_of_one_sum {
  input %x : f16[@5,72]
  input %r : f32[@5,72]
  param %v : f16[72]
  param %w : f16[72]
  %x32 = convert(%x) {dtype="f32"}
  %s = add(%r, %x32)
  %v32 = convert(%v) {dtype="f32"}
  %w32 = convert(%w) {dtype="f32"}
  %m = rms_norm(%s, %v32) {eps=1e-05}
  %a = convert(%m) {dtype="f16"}
  %n = rms_norm(%s, %w32) {eps=1e-05}
  %b = convert(%n) {dtype="f16"}
  return %a, %b
})",
                             R"(graph wide_sum_is_read_before_the_norm_ends {
  input %x : f16[@5,72]
  input %r : f32[@5,72]
  param %w : f16[72]
  %x32 = convert(%x) {dtype="f32"}
  %s = add(%r, %x32)
  %w32 = convert(%w) {dtype="f32"}
  %n = rms_norm(%s, %w32) {eps=1e-05}
  %d = mul(%s, %r)
  %y = convert(%n) {dtype="f16"}
  return %y, %d
})",
                             R"(graph wide_sum_of_another_width {
  input %x : bf16[@5,72]
  input %r : f32[@5,72]
  param %w : f16[72]
  %x32 = convert(%x) {dtype="f32"}
  %s = add(%r, %x32)
  %w32 = convert(%w) {dtype="f32"}
  %n = rms_norm(%s, %w32) {eps=1e-05}
  %y = convert(%n) {dtype="f16"}
  return %y
})"));

// What the fold is for: a block's two additions and norms cost one step each.
TEST(HostFolds, AResidualStreamInFp32IsOneStep) {
  const graph::Graph g = graph::parse(R"(graph wide {
  input %x : f16[@5,72]
  input %r : f32[@5,72]
  param %w : f16[72]
  %x32 = convert(%x) {dtype="f32"}
  %s = add(%x32, %r)
  %w32 = convert(%w) {dtype="f32"}
  %n = rms_norm(%s, %w32) {eps=1e-05}
  %y = convert(%n) {dtype="f16"}
  return %y, %s
})");
  Compiler compiler({.features = CpuFeatures::detected(), .threads = 1});
  const auto program = compiler.compile(g);
  ASSERT_EQ(program->host.steps.size(), 1u);
  EXPECT_EQ(program->host.steps[0]->describe(), "add to f32 and rms_norm n=72");
}

}  // namespace
}  // namespace spyre::compiler
