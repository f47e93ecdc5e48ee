// Every lowering rule by its number: a graph that keeps it and one that breaks it.
#include "plugins/spyre/device/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "graph/text.h"
#include "plugins/spyre/compiler/card_plan.h"
#include "plugins/spyre/compiler/divide_work.h"

namespace spyre::compiler {
namespace {

using device::Axis;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// "" when the card side of the compiler takes |graph|, else the refusal. |axes| replaces what phase 2 finds.
std::string refusal(const graph::Graph& graph, const Axes* axes = nullptr, RuleLog* met = nullptr) {
  RuleLog log;
  try {
    verify_rules(graph, log);
    const Axes found = axes != nullptr ? *axes : assign_extents(graph, log);
    const Layouts layouts = choose_layouts(graph, found, log);
    emit_device_ops(graph, found, layouts, log);
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
  EXPECT_GT(met[number], 0) << number << " was not checked";
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
  EXPECT_THAT(refusal("input %x : f16[64,32] \n param %w : f16[64,8] \n %s = reduce_sum(%x) {axis=1} \n "
                      "%y = matmul(%s, %w) \n return %y"),
              StartsWith("L-07"));
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
  RuleLog log;
  // 16 GiB over 32 cores is 512 MiB each.
  const std::vector<IterationDim> dims{{"0", 1 << 20, false}, {"1", 128, false}};
  const auto with = [&](int64_t bytes, std::vector<int> of) {
    return divide_work(dims, {{"%x", bytes, std::move(of)}}, "add %y", log);
  };
  EXPECT_NO_THROW(with(int64_t{8} << 30, {0, 1}));
  EXPECT_GT(log["L-15"], 0);
  EXPECT_THROW(with(int64_t{16} << 30, {0, 1}), Error);
  EXPECT_THROW(with(int64_t{1} << 30, {}), Error);  // read whole by every core
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
