#include "plugins/spyre/compiler/divide_work.h"

#include <gtest/gtest.h>

#include <random>

#include "plugins/spyre/device/core_map.h"

namespace spyre::compiler {
namespace {

using Splits = std::vector<int64_t>;

// The splits of one operation with these extents, |given| already cut, dimension |reduced| reduced.
Splits divided(std::vector<int64_t> extents, int reduced = -1, Splits given = {}) {
  const graph::Graph graph;
  RuleLog log;
  CardState state(graph, log);
  device::DeviceOp op{.name = "op", .extents = std::move(extents), .reduced_dim = reduced};
  op.splits = given.empty() ? Splits(op.extents.size(), 1) : std::move(given);
  state.plan.ops.push_back(std::move(op));
  divide_work(state);
  return state.plan.ops[0].splits;
}

TEST(DivideWork, TheLargestDimensionOfTheResultFirst) {
  EXPECT_EQ(divided({9, 8, 24}, 0), (Splits{1, 1, 24}));
  EXPECT_EQ(divided({9, 1, 9}, 0), (Splits{3, 1, 9}));
  EXPECT_EQ(divided({4096}), Splits{32});
  EXPECT_EQ(divided({31, 2}), (Splits{31, 1}));
  EXPECT_EQ(divided({}), Splits{});
}

TEST(DivideWork, KeepsWhatWasCutBefore) {
  EXPECT_EQ(divided({4, 64}, -1, {4, 1}), (Splits{4, 8}));
}

TEST(DivideWork, SplitsExactlyAndNoFurtherSplitIsLeft) {
  std::mt19937 random(6);
  for (int round = 0; round < 300; ++round) {
    const std::vector<int64_t> extents{1 + static_cast<int64_t>(random() % 100),
                                       1 + static_cast<int64_t>(random() % 100),
                                       1 + static_cast<int64_t>(random() % 100)};
    const Splits splits = divided(extents, round % 4 - 1);
    const int64_t cores = device::core_count(splits);
    EXPECT_LE(cores, device::kCores);
    for (size_t d = 0; d < extents.size(); ++d) {
      EXPECT_EQ(extents[d] % splits[d], 0);
      for (int64_t more = splits[d] + 1; more <= extents[d] && cores / splits[d] * more <= device::kCores; ++more) {
        EXPECT_NE(extents[d] % more, 0) << "dimension " << d << " of " << extents[d] << " could be cut in " << more;
      }
    }
  }
}

}  // namespace
}  // namespace spyre::compiler
