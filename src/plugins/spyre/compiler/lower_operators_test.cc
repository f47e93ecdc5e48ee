// Properties of card plans.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/cpu.h"
#include "base/error.h"
#include "graph/random_graph.h"
#include "graph/text.h"
#include "plugins/spyre/compiler/card_passes.h"
#include "plugins/spyre/compiler/compiler.h"

namespace spyre::compiler {
namespace {

using device::BufferHome;
using device::CardBuffer;
using device::CardPlan;
using device::DeviceOp;

CardPlan plan_of(const graph::Graph& graph) {
  RuleLog log;
  CardState state(graph, log);
  run_card_passes(state, {.verify = true});
  return std::move(state.plan);
}
CardPlan plan_of(const std::string& text) {
  return plan_of(graph::parse("graph g {\n" + text + "\n}"));
}

std::vector<std::string> names(const CardPlan& plan) {
  std::vector<std::string> out;
  for (const DeviceOp& op : plan.ops) out.push_back(op.name);
  return out;
}
using Names = std::vector<std::string>;

void check_plan(const CardPlan& plan) {
  std::set<int32_t> written;
  for (const DeviceOp& op : plan.ops) {
    for (int32_t b : op.inputs) {
      if (b < 0) continue;
      const int32_t root = plan.buffers[b].view ? plan.buffers[b].base : b;
      const BufferHome home = plan.buffers[root].home;
      const bool given = home == BufferHome::kInput || home == BufferHome::kParameter || home == BufferHome::kState;
      EXPECT_TRUE(given || written.count(root) > 0) << op.name << " reads what nobody wrote";
    }
    for (int32_t b : op.outputs) written.insert(plan.buffers[b].view ? plan.buffers[b].base : b);
    int64_t cores = 1;
    for (int64_t split : op.splits) cores *= split;
    EXPECT_LE(cores, 32);
    EXPECT_EQ(op.splits.size(), op.split_dims.size());
  }
  for (const CardBuffer& b : plan.buffers) {
    // A view begins at a whole stick and steps by whole sticks; only inside the stick are there single elements.
    const int64_t e = b.placement.stick_elements;
    EXPECT_EQ(b.placement.offset % e, 0);
    for (int64_t stride : b.placement.strides) EXPECT_EQ(stride % e, 0);
    if (b.view) {
      ASSERT_GE(b.base, 0);
      EXPECT_FALSE(plan.buffers[b.base].view);
    } else if (b.home == BufferHome::kPool) {
      EXPECT_EQ(b.pool_offset % 128, 0);
      EXPECT_LE(b.pool_offset + b.spec.card_bytes(), plan.pool_bytes);
    }
  }
}

TEST(LowerOperators, RandomPlansAreSound) {
  int lowered = 0;
  for (uint64_t seed = 5000; seed < 5400; ++seed) {
    const graph::RandomGraph random = graph::random_graph(seed);
    try {
      check_plan(plan_of(random.graph));
      ++lowered;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kRuleViolation) << error.what() << "\n" << graph::print(random.graph);
    }
  }
  EXPECT_GT(lowered, 300);
}

TEST(LowerOperators, ALinearLaysItsWeightAgainAMatmulDoesNot) {
  const CardPlan linear = plan_of("input %x : f16[4,64]\n param %w : f16[128,64]\n %y = linear(%x, %w)\n return %y");
  EXPECT_EQ(names(linear), (Names{"restickify", "batchmatmul"}));
  EXPECT_EQ(linear.restickified_bytes, 128 * 64 * 2);
  const CardPlan matmul = plan_of("input %x : f16[4,64]\n param %w : f16[64,128]\n %y = matmul(%x, %w)\n return %y");
  EXPECT_EQ(names(matmul), Names{"batchmatmul"});
  EXPECT_EQ(matmul.ops[0].macs, 4 * 64 * 128);
  EXPECT_EQ(matmul.ops[0].read_bytes, (4 * 64 + 64 * 128) * 2);
  EXPECT_EQ(matmul.ops[0].write_bytes, 4 * 128 * 2);
}

TEST(LowerOperators, WorkIsCountedOnCardExtents) {
  const CardPlan plan = plan_of("input %x : f16[4,100]\n param %w : f16[100,10]\n %y = matmul(%x, %w)\n return %y");
  EXPECT_EQ(plan.ops[0].macs, 4 * 128 * 64);
}

TEST(LowerOperators, AValueIsLaidAgainOnceForAllItsReaders) {
  const CardPlan plan = plan_of(R"(input %x : f16[64,128]
    param %a : f16[64,64]
    param %b : f16[64,64]
    %t = transpose(%x) {perm=[1,0]}
    %p = matmul(%t, %a)
    %q = matmul(%t, %b)
    %y = add(%p, %q)
    return %y)");
  EXPECT_EQ(names(plan), (Names{"restickify", "batchmatmul", "batchmatmul", "add"}));
}

TEST(LowerOperators, ReductionsOffTheStickHaveTheirOwnName) {
  EXPECT_EQ(names(plan_of("input %x : f16[8,64]\n %y = reduce_sum(%x) {axis=0}\n return %y")), Names{"sumnonstick"});
  EXPECT_EQ(names(plan_of("input %x : f16[8,64]\n %y = reduce_max(%x) {axis=1}\n return %y")), Names{"max"});
}

TEST(LowerOperators, ViewsCostNothingUntilTheyAreOutputs) {
  const std::string slice = "input %x : f16[8,128]\n %h = slice(%x) {axis=1, start=64, size=64}\n ";
  EXPECT_EQ(names(plan_of(slice + "%y = neg(%h)\n return %y")), Names{"neg"});
  EXPECT_EQ(names(plan_of(slice + "return %h")), Names{"identity"});
  // A given value that is returned is copied.
  EXPECT_EQ(names(plan_of(slice + "%y = neg(%h)\n return %x, %y, %y")), (Names{"neg", "identity", "identity"}));
}

// A residual stream in fp32 lies in whole pairs of 32-element sticks, as the casts on both sides of it need: 72
// elements are 2 sticks of 64 for the matmul, so 4 of 32, and no operator re-lays it.
TEST(LowerOperators, AnFp32StreamLiesInPairsOfSticks) {
  const graph::Graph g = graph::parse(R"(graph stream {
    input %x : f16[@5,72]
    input %r : f32[@5,72]
    param %w : f16[72]
    param %m : f16[72,40]
    %x32 = convert(%x) {dtype="f32"}
    %s = add(%x32, %r)
    %w32 = convert(%w) {dtype="f32"}
    %n = rms_norm(%s, %w32) {eps=1e-05}
    %y = convert(%n) {dtype="f16"}
    %z = matmul(%y, %m)
    return %z, %s
  })");
  Compiler compiler({.features = CpuFeatures::of(CpuLevel::kPortable)});
  const auto program = compiler.compile(g);
  EXPECT_EQ(program->output_specs[1].layout.device_size, (std::vector<int64_t>{4, 5, 32}));
  EXPECT_EQ(program->input_specs[1].layout.device_size, (std::vector<int64_t>{4, 5, 32}));
  EXPECT_EQ(program->input_specs[0].layout.device_size, (std::vector<int64_t>{2, 5, 64}));
  EXPECT_EQ(program->card.restickified_bytes, 0);
}

}  // namespace
}  // namespace spyre::compiler
