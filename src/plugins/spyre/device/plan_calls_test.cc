#include "plugins/spyre/device/plan_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/random_graph.h"
#include "graph/text.h"
#include "plugins/spyre/compiler/compiler.h"

namespace spyre::device {
namespace {

using ::testing::StartsWith;

struct Plan {
  graph::Graph graph;
  CardPlan card;
};

Plan compiled(const std::string& text) {
  compiler::Compiler compiler({.features = CpuFeatures::detected()});
  const auto program = compiler.compile(graph::parse("graph g {\n" + text + "\n}"));
  return {program->graph, program->card};
}

// |change| is made to the plan after it was compiled.
template <typename Change>
std::string refusal(Plan plan, Change&& change) {
  change(plan);
  try {
    check_plan_calls(plan.graph, plan.card);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRuleViolation) << error.what();
    return error.what();
  }
  return "";
}

const char* const kBlock = R"(
  input %x : f16[4,128]
  param %w : f16[128,192]
  param %b : f16[192]
  %y = matmul(%x, %w)
  %z = add(%y, %b)
  %s = reduce_sum(%z) {axis=1, keepdims=1}
  %t = sub(%z, %s)
  return %t)";

CardBuffer& buffer_of(Plan& plan, const std::string& value) {
  for (CardBuffer& b : plan.card.buffers) {
    if (plan.graph.value(b.value).name == value) return b;
  }
  throw_error(ErrorCode::kNotFound, "no buffer of {}", value);
}

TEST(PlanCalls, WhatTheCompilerMakesKeepsTheRules) {
  const Plan plan = compiled(kBlock);
  std::vector<std::string> names;
  for (const CardCall& call : plan_calls(plan.graph, plan.card)) names.push_back(call.name);
  EXPECT_EQ(names, (std::vector<std::string>{"batchmatmul", "add", "sum", "sub"}));
  EXPECT_EQ(refusal(plan, [](Plan&) {}), "");
}

// A norm and a softmax of rows of two sticks and a half: their dimension is whole on each core.
const char* const kRows = R"(
  input %x : f16[4,160]
  param %w : f16[160]
  %n = rms_norm(%x, %w) {eps=1e-5}
  %p = softmax(%n)
  return %p)";

TEST(PlanCalls, SequencesAreTheirFunctions) {
  const Plan plan = compiled(kRows);
  std::vector<std::string> names;
  for (const CardCall& call : plan_calls(plan.graph, plan.card)) names.push_back(call.name);
  EXPECT_EQ(names, (std::vector<std::string>{"exx2", "layernormscale", "layernormnorm", "max", "sub", "exp", "sum",
                                             "realdiv"}));
  EXPECT_EQ(refusal(plan, [](Plan&) {}), "");
  EXPECT_THAT(refusal(plan, [](Plan& p) { buffer_of(p, "x").placement.stick_dim = 0; }), StartsWith("L-39"));
  EXPECT_THAT(refusal(plan, [](Plan& p) { buffer_of(p, "p").placement.stick_dim = 0; }), StartsWith("L-25"));
  EXPECT_THAT(refusal(plan, [](Plan& p) { buffer_of(p, "x").placement.arrangement = Arrangement::kExx2; }),
              StartsWith("L-30"));
}

TEST(PlanCalls, CopiesAndLookupsAreCalls) {
  const Plan plan = compiled(R"(
  param %t : f16[9,64]
  input %i : i32[4]
  input %a : f16[4,64]
  %g = gather_rows(%t, %i)
  %c = concat(%g, %a) {axis=0}
  return %c, %a)");
  std::vector<std::string> names;
  for (const CardCall& call : plan_calls(plan.graph, plan.card)) names.push_back(call.name + " of " + call.what);
  EXPECT_EQ(names,
            (std::vector<std::string>{"gather of gather_rows %g", "concat of concat %c", "identity of copy %a"}));
  EXPECT_THAT(refusal(plan, [](Plan& p) { buffer_of(p, "a").placement.offset = 32; }), StartsWith("L-27"));
  // An index is exempt from what other operands of int32 are not.
  EXPECT_EQ(refusal(plan, [](Plan&) {}), "");
}

TEST(PlanCalls, RandomPlansKeepTheRules) {
  int lowered = 0;
  compiler::Compiler compiler({.features = CpuFeatures::detected()});
  for (uint64_t seed = 9000; seed < 9600; ++seed) {
    std::shared_ptr<const Program> program;
    try {
      program = compiler.compile(graph::random_graph(seed).graph);
    } catch (const Error& error) {
      continue;
    }
    ++lowered;
    EXPECT_EQ(refusal({program->graph, program->card}, [](Plan&) {}), "") << "seed " << seed << "\n"
                                                                          << graph::print(program->graph);
  }
  EXPECT_GT(lowered, 300);
}

TEST(PlanCalls, AWrongStickIsRefused) {
  EXPECT_THAT(refusal(compiled(kBlock), [](Plan& p) { buffer_of(p, "t").placement.stick_dim = 0; }),
              StartsWith("L-25"));
  EXPECT_THAT(refusal(compiled(kBlock), [](Plan& p) { buffer_of(p, "w").placement.stick_dim = 0; }),
              StartsWith("L-37"));
  EXPECT_THAT(refusal(compiled(kBlock), [](Plan& p) { buffer_of(p, "b").placement.offset = 32; }), StartsWith("L-27"));
  EXPECT_THAT(refusal(compiled(kBlock),
                      [](Plan& p) {
                        for (DeviceOp& op : p.card.ops) {
                          if (op.name == "sum") op.name = "sumnonstick";
                        }
                      }),
              StartsWith("L-31"));
}

}  // namespace
}  // namespace spyre::device
