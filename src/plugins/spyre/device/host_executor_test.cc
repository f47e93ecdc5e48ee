#include "plugins/spyre/device/host_executor.h"

#include <gtest/gtest.h>

#include <random>

namespace spyre::device {
namespace {

TEST(ShareLanes, EveryLaneHasOneMember) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<HostChain> chains(1 + random() % kMaxChains);
    int64_t total = 0, largest = 0;
    for (HostChain& chain : chains) {
      chain = {.columns = 1 + static_cast<int64_t>(random() % 300),
               .width = 1 + static_cast<int64_t>(random() % 64),
               .cost = 1 + static_cast<int64_t>(random() % 5000)};
      total += chain.lanes() * chain.cost;
      largest = std::max(largest, chain.cost);
    }
    const int count = 1 + static_cast<int>(random() % 9);
    std::vector<Range> lanes(chains.size()), before(chains.size());
    for (int index = 0; index < count; ++index) {
      share_lanes(chains, index, count, lanes);
      int64_t cost = 0;
      for (size_t c = 0; c < chains.size(); ++c) {
        ASSERT_EQ(lanes[c].begin, before[c].end);
        ASSERT_LE(lanes[c].begin, lanes[c].end);
        cost += lanes[c].size() * chains[c].cost;
      }
      ASSERT_LE(cost, total / count + 1 + largest) << "member " << index << " of " << count;
      before = lanes;
    }
    for (size_t c = 0; c < chains.size(); ++c) ASSERT_EQ(before[c].end, chains[c].lanes());
  }
}

// Three KV lanes (keys and values, 128 columns) and nine query lanes on two members: 448 and 512 of 960 columns.
TEST(ShareLanes, QueriesFillUpWhatKeysLeave) {
  const std::vector<HostChain> chains = {{.columns = 192, .width = 64, .cost = 128},
                                         {.columns = 576, .width = 64, .cost = 64}};
  std::vector<Range> lanes(2);
  share_lanes(chains, 0, 2, lanes);
  EXPECT_EQ(lanes[0], (Range{0, 3}));
  EXPECT_EQ(lanes[1], (Range{0, 1}));
}

}  // namespace
}  // namespace spyre::device
