// Every lowering rule by its number: a graph that keeps it and one that breaks it.
#include "plugins/spyre/device/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "base/error.h"
#include "graph/text.h"
#include "plugins/spyre/compiler/card_passes.h"
#include "plugins/spyre/compiler/verify_card_plan.h"

namespace spyre::compiler {
namespace {

using device::Axis;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// "" when the card side of the compiler takes |graph|, else the refusal. |axes| replaces what phase 2 finds.
std::string refusal(const graph::Graph& graph, const Axes* axes = nullptr, RuleLog* met = nullptr) {
  RuleLog log;
  try {
    CardState state(graph, log);
    for (const CardPass& pass : card_passes()) {
      pass.run(state);
      if (axes != nullptr && pass.name == "assign-extents") state.axes = *axes;
    }
    verify_card_plan(state, "the test");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRuleViolation) << error.what();
    return error.what();
  }
  if (met != nullptr) *met = log;
  return "";
}
std::string refusal(const std::string& text) {
  return refusal(graph::parse("graph g {\n" + text + "\n}"));
}

void expect_met(const std::string& text, const std::string& number) {
  RuleLog met;
  EXPECT_EQ(refusal(graph::parse("graph g {\n" + text + "\n}"), nullptr, &met), "");
  EXPECT_GT(met[std::string_view(number)], 0) << number << " was not checked";
}

// Every dimension as it is in the model.
Axes plain_axes(const graph::Graph& graph) {
  Axes axes;
  for (const graph::Value& value : graph.values) {
    axes.emplace_back();
    for (const graph::Dim& dim : value.type.dims) axes.back().emplace_back(dim.extent);
  }
  return axes;
}
std::string refusal_unpadded(const std::string& text) {
  const graph::Graph graph = graph::parse("graph g {\n" + text + "\n}");
  const Axes axes = plain_axes(graph);
  return refusal(graph, &axes);
}

graph::Graph one_input(graph::Type type) {
  graph::Graph graph;
  graph.values.push_back({.name = "x", .type = std::move(type), .role = graph::Role::kInput});
  graph.inputs.push_back(0);
  return graph;
}

const char* const kNeg = "input %x : f16[4,64] \n %y = neg(%x) \n return %y";

TEST(Rules, L01_DType) {
  expect_met(kNeg, "L-01");
  EXPECT_THAT(refusal(one_input({graph::TypeKind::kTensor, DType::kI8, {{4}}})), StartsWith("L-01"));
}
TEST(Rules, L02_Rank) {
  expect_met(kNeg, "L-02");
  const std::vector<graph::Dim> dims(7, graph::Dim{2});
  EXPECT_THAT(refusal(one_input({graph::TypeKind::kTensor, DType::kF16, dims})), StartsWith("L-02"));
}
TEST(Rules, L03_EmptyTensor) {
  expect_met(kNeg, "L-03");
  EXPECT_THAT(refusal(one_input({graph::TypeKind::kTensor, DType::kF16, {{4}, {0}}})), StartsWith("L-03"));
}
TEST(Rules, L04_MatmulDType) {
  expect_met("input %x : f16[4,64] \n param %w : f16[64,64] \n %y = matmul(%x, %w) {dtype=\"f32\"} \n return %y",
             "L-04");
  EXPECT_THAT(refusal("input %x : f32[4,64] \n param %w : f32[64,64] \n %y = matmul(%x, %w) \n return %y"),
              StartsWith("L-04"));
}
TEST(Rules, L05_Fp32Ops) {
  expect_met("input %x : f32[4,64] \n %y = exp(%x) \n return %y", "L-05");
  EXPECT_THAT(refusal("input %x : f32[4,64] \n %y = softmax(%x) \n return %y"), StartsWith("L-05"));
  EXPECT_THAT(refusal("input %x : f32[4,64] \n %y = tanh(%x) \n return %y"), StartsWith("L-05"));
}
TEST(Rules, L06_RestickifyFp32) {
  const auto sum_of_transposed = [](const std::string& dtype) {
    return "input %x : " + dtype + "[4,64] \n input %z : " + dtype +
           "[64,4] \n %t = transpose(%x) {perm=[1,0]} \n %y = add(%z, %t) \n return %y";
  };
  EXPECT_EQ(refusal(sum_of_transposed("f16")), "");
  EXPECT_THAT(refusal(sum_of_transposed("f32")), StartsWith("L-06"));
}
TEST(Rules, L07_RestickifySparse) {
  expect_met(
      "input %x : f16[64,32] \n param %w : f16[64,8] \n %t = transpose(%x) {perm=[1,0]} \n %y = matmul(%t, %w) "
      "\n return %y",
      "L-07");
  // Reduced along the stick: one element per stick, which no other layout can take in.
  EXPECT_THAT(refusal("input %x : f16[60,32] \n param %w : f16[60,8] \n %s = reduce_sum(%x) {axis=1} \n "
                      "%y = matmul(%s, %w) \n return %y"),
              StartsWith("L-07"));
  // Rows of whole sticks can be brought into the stick before the reduction.
  EXPECT_EQ(refusal("input %x : f16[64,32] \n param %w : f16[64,8] \n %s = reduce_sum(%x) {axis=1} \n "
                    "%y = matmul(%s, %w) \n return %y"),
            "");
  // Kept and broadcast back it is fine, and so is a reduction off the stick.
  EXPECT_EQ(
      refusal("input %x : f16[64,32] \n %s = reduce_sum(%x) {axis=1, keepdims=1} \n %y = div(%x, %s) \n return %y"),
      "");
  EXPECT_EQ(refusal("input %x : f16[64,32] \n param %w : f16[32,8] \n %s = reduce_sum(%x) {axis=0} \n "
                    "%y = matmul(%s, %w) \n return %y"),
            "");
}
TEST(Rules, L08_GatherIndex) {
  expect_met("param %t : f16[9,64] \n input %i : i32[4] \n %y = gather_rows(%t, %i) \n return %y", "L-08");
  EXPECT_THAT(refusal("param %t : f16[9,64] \n input %i : i32[8] \n %j = slice(%i) {axis=0, start=4, size=4} \n "
                      "%y = gather_rows(%t, %j) \n return %y"),
              StartsWith("L-08"));
}
TEST(Rules, L09_GatherOnStick) {
  expect_met("param %t : f16[9,64] \n input %i : i32[4] \n %y = gather_rows(%t, %i) \n return %y", "L-09");
  EXPECT_THAT(refusal("param %t : f16[9] \n input %i : i32[4] \n %y = gather_rows(%t, %i) \n return %y"),
              StartsWith("L-09"));
}
TEST(Rules, L10_SliceOffStick) {
  const std::string text = "input %x : f16[4,100] \n %y = slice(%x) {axis=1, start=30, size=70} \n return %y";
  expect_met(text, "L-10");
  EXPECT_THAT(refusal_unpadded(text), StartsWith("L-10"));
  EXPECT_EQ(refusal_unpadded("input %x : f16[4,100] \n %y = slice(%x) {axis=1, start=64, size=36} \n return %y"), "");
}
TEST(Rules, L11_ConcatOffStick) {
  const std::string text = "input %x : f16[4,30] \n input %z : f16[4,64] \n %y = concat(%x, %z) {axis=1} \n return %y";
  expect_met(text, "L-11");
  EXPECT_THAT(refusal_unpadded(text), StartsWith("L-11"));
}
TEST(Rules, L12_RotaryHalf) {
  const std::string text = "input %x : f16[4,2,64] \n input %r : f16[4,2,2,32] \n %y = rotate_2x2(%x, %r) \n return %y";
  expect_met(text, "L-12");
  EXPECT_THAT(refusal_unpadded(text), StartsWith("L-12"));
  EXPECT_EQ(
      refusal_unpadded("input %x : f16[4,2,128] \n input %r : f16[4,2,2,64] \n %y = rotate_2x2(%x, %r) \n return %y"),
      "");
}
TEST(Rules, L13_HeadSize) {
  const std::string text =
      "input %q : f16[4,2,40] \n input %b : batch \n state %kv : kv f16[2,40] \n "
      "%y = attention(%q, %kv, %b) {scale=1} \n return %y";
  expect_met(text, "L-13");
  EXPECT_THAT(refusal_unpadded(text), StartsWith("L-13"));
}
TEST(Rules, L15_CoreSpan) {
  const auto sum = [](const std::string& type) { return "input %x : " + type + " \n %y = neg(%x) \n return %y"; };
  expect_met(sum("f16[1048576,2048]"), "L-15");
  // 128 MiB in each of 128 stick columns: 4 columns a core, and no split of the rows makes their range shorter.
  EXPECT_THAT(refusal(sum("f16[1048576,8192]")), StartsWith("L-15"));
}
TEST(Rules, L16_ReshapeAcrossStick) {
  expect_met("input %x : f16[4,6,10] \n %y = reshape(%x) {shape=[4,60]} \n return %y", "L-16");
  EXPECT_THAT(refusal("input %x : f16[6,4] \n %y = reshape(%x) {shape=[8,3]} \n return %y"), StartsWith("L-16"));
  EXPECT_THAT(refusal_unpadded("input %x : f16[4,60] \n %y = reshape(%x) {shape=[4,6,10]} \n return %y"),
              StartsWith("L-16"));
}
TEST(Rules, L17_MixedStick) {
  expect_met("input %x : f16[4,64] \n input %z : f16[64] \n %y = add(%x, %z) \n return %y", "L-17");
  // A column that was a row: its stick cannot become the one that x has.
  EXPECT_THAT(refusal("input %x : f32[4,64] \n input %c : f32[1,4] \n %t = transpose(%c) {perm=[1,0]} \n "
                      "%y = add(%x, %t) \n return %y"),
              StartsWith("L-17"));
}
TEST(Rules, L18_ExtentConflict) {
  const std::string text = "input %x : f16[4,100] \n param %w : f16[100,64] \n %y = matmul(%x, %w) \n return %y";
  expect_met(text, "L-18");
  EXPECT_THAT(refusal_unpadded(text), StartsWith("L-18"));
  const graph::Graph graph = graph::parse("graph g {\n" + text + "\n}");
  Axes axes = plain_axes(graph);
  axes[*graph.find("x")][1] = Axis({{1, 100, 128, false}});
  EXPECT_THAT(refusal(graph, &axes), HasSubstr("ties"));
}
TEST(Rules, L19_MatmulDims) {
  expect_met("input %x : f16[2,3,4,64] \n param %w : f16[2,3,64,8] \n %y = matmul(%x, %w) \n return %y", "L-19");
  EXPECT_THAT(refusal("input %x : f16[2,2,2,4,64] \n param %w : f16[2,2,2,64,8] \n %y = matmul(%x, %w) \n return %y"),
              StartsWith("L-19"));
}
TEST(Rules, L20_NoLowering) {
  expect_met(kNeg, "L-20");
  EXPECT_THAT(refusal("input %x : f16[4,64] \n param %w : f16[64,64] grouped_int \n %y = matmul(%x, %w) \n return %y"),
              StartsWith("L-20"));
}

TEST(Rules, L40_MatmulOneColumn) {
  expect_met("input %x : f16[4,64] \n param %w : f16[64,2] \n %y = matmul(%x, %w) \n return %y", "L-40");
  EXPECT_THAT(refusal("input %x : f16[4,64] \n param %w : f16[64,1] \n %y = matmul(%x, %w) \n return %y"),
              StartsWith("L-40"));
  EXPECT_THAT(refusal("input %x : f16[4,64] \n param %w : f16[1,64] \n %y = linear(%x, %w) \n return %y"),
              StartsWith("L-40"));
}
TEST(Rules, L41_PoolSegment) {
  // Values of 4 GiB that are all live until they are added up.
  const auto sum_of = [](int values) {
    std::string text = "input %x : f16[2,16384,65536] \n %v0 = neg(%x) \n ";
    for (int i = 1; i < values; ++i) text += fmt::format("%v{} = exp(%v{}) \n ", i, i - 1);
    text += "%s0 = neg(%v0) \n ";
    for (int i = 1; i < values; ++i) text += fmt::format("%s{} = add(%s{}, %v{}) \n ", i, i - 1, i);
    return text + fmt::format("return %s{}", values - 1);
  };
  expect_met(sum_of(2), "L-41");
  EXPECT_THAT(refusal(sum_of(4)), StartsWith("L-41"));
}
TEST(Rules, L42_TensorSegment) {
  expect_met(kNeg, "L-42");
  EXPECT_THAT(
      refusal(
          "param %t : f16[131072,131072] \n %h = slice(%t) {axis=1, start=0, size=64} \n %y = neg(%h) \n return %y"),
      StartsWith("L-42"));
}

// A plan that somebody else divided, placed or laid out: |spoil| changes what the phases made.
std::string refusal_of_plan(const std::string& text, const std::function<void(device::CardPlan&)>& spoil) {
  RuleLog log;
  const graph::Graph graph = graph::parse("graph g {\n" + text + "\n}");
  CardState state(graph, log);
  run_card_passes(state);
  if (spoil) spoil(state.plan);
  try {
    verify_card_plan(state, "the test");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRuleViolation) << error.what();
    return error.what();
  }
  return "";
}
const char* const kProduct =
    "input %x : f16[64,128] \n param %w : f16[128,128] \n %y = matmul(%x, %w) \n %z = neg(%y) \n return %z";

TEST(Rules, L43_ExactSplit) {
  expect_met(kProduct, "L-43");
  EXPECT_EQ(refusal_of_plan(kProduct, [](device::CardPlan& plan) { plan.ops[0].splits = {1, 16, 2}; }), "");
  EXPECT_THAT(refusal_of_plan(kProduct, [](device::CardPlan& plan) { plan.ops[0].splits = {1, 7, 1}; }),
              StartsWith("L-43"));
}
TEST(Rules, L44_Cores) {
  expect_met(kProduct, "L-44");
  EXPECT_THAT(refusal_of_plan(kProduct, [](device::CardPlan& plan) { plan.ops[0].splits = {1, 32, 2}; }),
              StartsWith("L-44"));
}
TEST(Rules, L45_PartialSums) {
  expect_met(kProduct, "L-45");
  const auto divided = [](std::vector<int64_t> splits, int reduced) {
    return refusal_of_plan(kProduct, [&](device::CardPlan& plan) {
      plan.ops[0].splits = splits;
      plan.ops[0].reduced_dim = reduced;
    });
  };
  EXPECT_EQ(divided({2, 16, 1}, 0), "");
  // The same division, but what is reduced changes slower than the rows.
  EXPECT_THAT(divided({2, 16, 1}, 1), StartsWith("L-45"));
}
TEST(Rules, L46_Alignment) {
  expect_met(kProduct, "L-46");
  EXPECT_THAT(refusal_of_plan(kProduct,
                              [](device::CardPlan& plan) {
                                for (device::CardBuffer& b : plan.buffers) b.pool_offset += b.pool_offset < 0 ? 0 : 64;
                                plan.pool_bytes += 128;
                              }),
              StartsWith("L-46"));
  const char* const view =
      "input %x : f16[4,128] \n %h = slice(%x) {axis=1, start=64, size=64} \n %y = neg(%h) \n return %y";
  EXPECT_EQ(refusal_of_plan(view, {}), "");
  EXPECT_THAT(refusal_of_plan(view,
                              [](device::CardPlan& plan) {
                                for (device::CardBuffer& b : plan.buffers) b.placement.offset -= b.view ? 32 : 0;
                              }),
              StartsWith("L-46"));
}
TEST(Rules, L47_OperandStick) {
  const char* const linear = "input %x : f16[4,64] \n param %w : f16[128,64] \n %y = linear(%x, %w) \n return %y";
  expect_met(linear, "L-47");
  // The weight is read as it was given, without the restickify.
  EXPECT_THAT(refusal_of_plan(linear,
                              [](device::CardPlan& plan) {
                                plan.ops.erase(plan.ops.begin());
                                plan.ops[0].inputs[1] = 1;
                              }),
              StartsWith("L-47"));
}

// Extents that no memory could hold end in a rule, not in an allocation.
TEST(Rules, AbsurdExtentsAreRefused) {
  EXPECT_THAT(refusal("input %x : f16[1048576,1048576] \n param %w : f16[1048576,1048576] \n %y = matmul(%x, %w) \n "
                      "return %y"),
              StartsWith("L-15"));
  EXPECT_THAT(refusal("input %x : f16[1099511627776] \n %h = slice(%x) {axis=0, start=64, size=1000000000000} \n "
                      "%y = reshape(%h) {shape=[1000000,1000000]} \n %z = neg(%y) \n return %z"),
              StartsWith("L-"));
}

TEST(RulesPage, IsUpToDate) {
  const std::filesystem::path path = std::filesystem::path(SPYRE_TEST_DATA) / "../../docs/rules.md";
  if (std::getenv("SPYRE_REGENERATE") != nullptr) std::ofstream(path) << device::rules_page();
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), device::rules_page())
      << "docs/rules.md differs from the table; SPYRE_REGENERATE=1 ./run test RulesPage writes it again";
}

TEST(RulesPage, NumbersAscend) {
  std::string_view last;
  for (const device::RuleInfo& r : device::all_rules()) {
    EXPECT_LT(last, r.number);
    last = r.number;
    EXPECT_EQ(&device::info(r.rule), &r);
  }
}

}  // namespace
}  // namespace spyre::compiler
