// Where the barriers of a plan are, and that who computes what changes no bit.
#include "plugins/spyre/compiler/host_phases.h"

#include <gtest/gtest.h>

#include <random>

#include "base/cpu.h"
#include "base/error.h"
#include "base/vector_math.h"
#include "graph/text.h"
#include "plugins/spyre/compiler/compiler.h"
#include "plugins/spyre/testing/device_run.h"

namespace spyre::compiler {
namespace {

using device::HostPhase;

// "rows(2) columns(1+3) whole": what is done between barriers when rows are few. In brackets the steps; of columns,
// those before them (each member for itself) and those by columns.
std::string phases_of(const device::HostPlan& plan) {
  std::string out;
  for (const HostPhase& phase : plan.phases) {
    if (!out.empty()) out += ' ';
    switch (phase.kind) {
      case HostPhase::Kind::kWhole:
        out += "whole";
        break;
      case HostPhase::Kind::kRows:
        out += fmt::format("rows({})", phase.count);
        break;
      case HostPhase::Kind::kColumns:
        out += fmt::format("columns({}+{})", phase.prologue, phase.count - phase.prologue);
        break;
    }
  }
  return out;
}

// The parts of a decoder block without attention: norm, a fused product, heads that turn, a bias, another product, an
// addition with its norm, gate and up, and the way back. 3 heads of 32 and one KV head.
constexpr const char* kBlock = R"(graph block {
  input %x : f16[@320,72]
  input %r : f32[@320,72]
  input %rotation : f16[@320,2,2,16]
  param %w1 : f16[72]
  param %qkv : f16[72,160]
  param %b : f16[160]
  param %o : f16[96,72]
  param %w2 : f16[72]
  param %gate_up : f16[72,224]
  param %down : f16[112,72]
  %x32 = convert(%x) {dtype="f32"}
  %s = add(%x32, %r)
  %v1 = convert(%w1) {dtype="f32"}
  %n = rms_norm(%s, %v1) {eps=1e-05}
  %h = convert(%n) {dtype="f16"}
  %p = matmul(%h, %qkv)
  %pb = add(%p, %b)
  %q = slice(%pb) {axis=1, size=96, start=0}
  %k = slice(%pb) {axis=1, size=32, start=96}
  %v = slice(%pb) {axis=1, size=32, start=128}
  %qh = reshape(%q) {shape=[-1,3,32]}
  %kh = reshape(%k) {shape=[-1,1,32]}
  %qr = rotate_2x2(%qh, %rotation)
  %kr = rotate_2x2(%kh, %rotation)
  %vs = silu(%v)
  %a = reshape(%qr) {shape=[-1,96]}
  %y = matmul(%a, %o)
  %y32 = convert(%y) {dtype="f32"}
  %s2 = add(%y32, %s)
  %v2 = convert(%w2) {dtype="f32"}
  %n2 = rms_norm(%s2, %v2) {eps=1e-05}
  %h2 = convert(%n2) {dtype="f16"}
  %gu = matmul(%h2, %gate_up)
  %g = slice(%gu) {axis=1, size=112, start=0}
  %u = slice(%gu) {axis=1, size=112, start=112}
  %ga = silu(%g)
  %m = mul(%ga, %u)
  %z = matmul(%m, %down)
  return %z, %s2, %kr, %vs
})";

graph::Bindings bindings_for(const graph::Graph& g) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  const auto bind = [&](graph::ValueId id) {
    const graph::Type& type = g.type(id);
    std::vector<float> values(static_cast<size_t>(type.elements()));
    for (float& v : values) v = round_to(type.dtype, normal(random));
    return graph::Array::of(type, std::move(values));
  };
  graph::Bindings bindings;
  for (graph::ValueId id : g.inputs) bindings.inputs.push_back(bind(id));
  for (graph::ValueId id : g.parameters) bindings.parameters.push_back(bind(id));
  return bindings;
}

TEST(HostPhases, ABlockWaitsOncePerProduct) {
  Compiler compiler({.features = CpuFeatures::detected(), .threads = 2});
  const auto program = compiler.compile(graph::parse(kBlock));
  // The norm and the product, bias and heads behind it; the product over the heads; norm, gate, up and activation;
  // down.
  EXPECT_EQ(phases_of(program->host), "columns(1+5) whole columns(1+2) whole");
  ASSERT_EQ(program->host.segments.size(), 1u);
  EXPECT_TRUE(program->host.segments[0].rowwise);
  // Rows of what is handed on lie in chunks: no arena for the bucket's 320 rows.
  EXPECT_EQ(program->host.arena_bytes, 0u);
  EXPECT_GT(program->host.chunk_bytes, 0u);
}

TEST(HostPhases, NoBitDependsOnWhoComputes) {
  const graph::Graph g = graph::parse(kBlock);
  const graph::Bindings bindings = bindings_for(g);
  std::vector<graph::Array> expected;
  {
    ScopedFlushDenormals flush;
    expected = graph::Interpreter(graph::EvalMode::kExact).run(g, bindings);
  }
  for (const int threads : {1, 2, 3, 5}) {
    Compiler compiler({.features = CpuFeatures::detected(), .threads = threads});
    const auto program = compiler.compile(g);
    for (const int64_t rows_per_member : {1, 7, 64, 96}) {
      device::SoftwareDevice device(
          {.features = CpuFeatures::detected(), .threads = threads, .executor = {.rows_per_member = rows_per_member}});
      for (const int64_t rows : {1, 2, 5, 17, 43, 64, 65, 127, 129, 200, 320}) {
        const auto results = testing::run_on_device(device, *program, bindings, rows);
        for (size_t i = 0; i < results.size(); ++i) {
          ASSERT_TRUE(testing::equal_bits(results[i], std::span(expected[i].floats()).first(results[i].size())))
              << threads << " threads, " << rows_per_member << " rows each, " << rows << " rows, output " << i;
        }
      }
    }
  }
}

struct Case {
  const char* name;
  const char* text;
  const char* phases;
};

class HostPhasesOf : public ::testing::TestWithParam<Case> {};

TEST_P(HostPhasesOf, Graph) {
  Compiler compiler({.features = CpuFeatures::detected(), .threads = 2});
  EXPECT_EQ(phases_of(compiler.compile(graph::parse(GetParam().text))->host), GetParam().phases);
}

INSTANTIATE_TEST_SUITE_P(
    HostPhases, HostPhasesOf,
    ::testing::Values(
        // The norm's result is read again later: it cannot stay with each member.
        Case{"norm_is_an_output", R"(graph g {
  input %x : f16[@64,64]
  param %w : f16[64]
  param %a : f16[64,128]
  %n = rms_norm(%x, %w) {eps=1e-05}
  %y = matmul(%n, %a)
  return %y, %n
})",
             "rows(1) whole"},
        // Rows that end in a transpose are not rows any more.
        Case{"transposed", R"(graph g {
  input %x : f16[@64,2,64]
  param %a : f16[64,64]
  %t = transpose(%x) {perm=[1,0,2]}
  %s = silu(%t)
  %u = transpose(%s) {perm=[1,0,2]}
  %y = relu(%u)
  return %y
})",
             "whole rows(1)"},
        // A softmax needs whole rows of the product.
        Case{"softmax_of_a_product", R"(graph g {
  input %x : f16[@64,64]
  param %a : f16[64,128]
  %p = matmul(%x, %a)
  %y = softmax(%p)
  return %y
})",
             "whole rows(1)"},
        // Halves that do not begin at a vector of the product's.
        Case{"odd_halves", R"(graph g {
  input %x : f16[@64,64]
  param %a : f16[64,200]
  %p = matmul(%x, %a)
  %g = slice(%p) {axis=1, size=100, start=0}
  %u = slice(%p) {axis=1, size=100, start=100}
  %s = silu(%g)
  %y = mul(%s, %u)
  return %y
})",
             "whole rows(1)"},
        // Two products of one operand need no barrier between them; a third one of their results does.
        Case{"products_side_by_side", R"(graph g {
  input %x : f16[@64,64]
  param %a : f16[64,64]
  param %b : f16[64,64]
  %p = matmul(%x, %a)
  %q = matmul(%x, %b)
  %s = add(%p, %q)
  %y = matmul(%s, %a)
  return %y
})",
             "columns(0+3) whole"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace spyre::compiler
