#include "plugins/spyre/compiler/plan_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "plugins/spyre/testing/planned_graph.h"

namespace spyre::compiler {
namespace {

TEST(PlanPool, AChainTakesTwoBuffers) {
  std::vector<PoolRequest> chain;
  for (int32_t i = 0; i < 10; ++i) chain.push_back({1024, i, i + 1});
  EXPECT_EQ(plan_pool(chain).bytes, 2048);
}

TEST(PlanPool, AGapIsFilledFirst) {
  const PoolPlan plan = plan_pool({{256, 0, 1}, {128, 0, 9}, {200, 2, 3}});
  EXPECT_EQ(plan.offsets, (std::vector<int64_t>{0, 256, 0}));
  EXPECT_EQ(plan.bytes, 384);
}

// What lives at the same time never overlaps; everything is aligned and inside.
TEST(PlanPool, RandomRangesDoNotOverlap) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<PoolRequest> requests;
    for (int32_t i = 0; i < 40; ++i) {
      const int32_t first = static_cast<int32_t>(random() % 30);
      requests.push_back(
          {static_cast<int64_t>(1 + random() % 1000), first, first + static_cast<int32_t>(random() % 8)});
    }
    const PoolPlan plan = plan_pool(requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(plan.offsets[i] % 128, 0);
      EXPECT_LE(plan.offsets[i] + requests[i].bytes, plan.bytes);
      for (size_t j = 0; j < i; ++j) {
        if (requests[j].last < requests[i].first || requests[i].last < requests[j].first) continue;
        EXPECT_TRUE(plan.offsets[i] + requests[i].bytes <= plan.offsets[j] ||
                    plan.offsets[j] + requests[j].bytes <= plan.offsets[i]);
      }
    }
  }
}

TEST(PlanPool, TheBoundIsWhatLivesAtOnce) {
  // 128 + 256 live at 1, and 256 + 128 at 2: never all three.
  const PoolPlan plan = plan_pool({{128, 0, 1}, {200, 1, 2}, {100, 2, 3}});
  EXPECT_EQ(plan.lower_bound, 384);
  EXPECT_EQ(plan.bytes, 384);
  // First fit is not always the best: the gap of 128 between two long-lived buffers is too short for 256.
  const PoolPlan gap = plan_pool({{128, 0, 9}, {128, 0, 1}, {128, 0, 9}, {256, 2, 3}});
  EXPECT_EQ(gap.lower_bound, 512);
  EXPECT_EQ(gap.bytes, 640);
}

TEST(PlanPool, AViewKeepsItsBaseAlive) {
  const testing::PlannedGraph g(R"(input %x : f16[8,128]
    %a = neg(%x)
    %h = slice(%a) {axis=1, start=64, size=64}
    %b = exp(%x)
    %c = neg(%b)
    %d = slice(%c) {axis=1, start=0, size=64}
    %y = add(%h, %d)
    return %y)");
  const std::vector<LiveRange> ranges = live_ranges(g.plan());
  for (size_t b = 0; b < ranges.size(); ++b) {
    if (g.plan().buffers[b].view || g.graph.value(g.plan().buffers[b].value).name != "a") continue;
    EXPECT_EQ(ranges[b].first, 0);
    EXPECT_EQ(ranges[b].last, 3);
  }
  EXPECT_EQ(g.plan().pool_lower_bound, 3 * 8 * 128 * 2);
}

}  // namespace
}  // namespace spyre::compiler
