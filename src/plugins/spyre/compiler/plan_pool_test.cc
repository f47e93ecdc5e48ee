#include "plugins/spyre/compiler/plan_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "plugins/spyre/compiler/divide_work.h"

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

TEST(DivideWork, SplitsExactlyAndNeverBeyondTheCores) {
  std::mt19937 random(6);
  for (int round = 0; round < 300; ++round) {
    std::vector<IterationDim> dims;
    for (int d = 0; d < 3; ++d) dims.push_back({"d", static_cast<int64_t>(1 + random() % 100), d == 2});
    RuleLog log;
    const std::vector<int64_t> splits = divide_work(dims, {}, "op", log);
    int64_t cores = 1;
    for (size_t d = 0; d < dims.size(); ++d) {
      EXPECT_EQ(dims[d].extent % splits[d], 0);
      cores *= splits[d];
    }
    EXPECT_LE(cores, kCores);
  }
}

TEST(DivideWork, TheLargestOutputDimensionFirst) {
  RuleLog log;
  EXPECT_EQ(divide_work({{"M", 8, false}, {"N", 24, false}, {"K", 9, true}}, {}, "matmul", log),
            (std::vector<int64_t>{1, 24, 1}));
  EXPECT_EQ(divide_work({{"M", 1, false}, {"N", 9, false}, {"K", 9, true}}, {}, "matmul", log),
            (std::vector<int64_t>{1, 9, 3}));
}

TEST(DivideWork, SpansComeFirst) {
  RuleLog log;
  // Only dimension 0 shortens the span of x: it is split before the larger dimension 1.
  const auto splits = divide_work({{"0", 4, false}, {"1", 64, false}}, {{"%x", int64_t{1} << 30, {0}}}, "add", log);
  EXPECT_EQ(splits, (std::vector<int64_t>{4, 8}));
}

}  // namespace
}  // namespace spyre::compiler
