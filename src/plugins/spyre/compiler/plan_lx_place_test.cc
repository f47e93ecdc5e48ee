// Placement in the scratchpad against an exhaustive search over addresses, which knows neither orders nor first fit.
#include "plugins/spyre/compiler/plan_lx_place.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

namespace spyre::compiler {
namespace {

constexpr int64_t kUnit = 128;

bool may_share(const LxRequest& a, const LxRequest& b, int64_t at_a, int64_t at_b, int32_t index_a, int32_t index_b) {
  const auto replaces = [](const LxRequest& later, const LxRequest& earlier, int32_t index) {
    if (later.first != earlier.last || later.bytes > earlier.bytes) return false;
    for (const int32_t r : later.replaces) {
      if (r == index) return true;
    }
    return false;
  };
  return at_a == at_b && (replaces(b, a, index_a) || replaces(a, b, index_b));
}

bool valid(const std::vector<LxRequest>& requests, const std::vector<int64_t>& at, int64_t capacity) {
  for (size_t i = 0; i < requests.size(); ++i) {
    if (at[i] < 0) continue;
    if (at[i] % kUnit != 0 || at[i] + requests[i].bytes > capacity) return false;
    for (size_t j = 0; j < i; ++j) {
      if (at[j] < 0) continue;
      const LxRequest &a = requests[i], &b = requests[j];
      const bool meet = a.first <= b.last && b.first <= a.last;
      const bool overlap = at[i] < at[j] + b.bytes && at[j] < at[i] + a.bytes;
      if (meet && overlap && !may_share(a, b, at[i], at[j], static_cast<int32_t>(i), static_cast<int32_t>(j))) {
        return false;
      }
    }
  }
  return true;
}

// Every combination of addresses.
int64_t best_worth(const std::vector<LxRequest>& requests, int64_t capacity) {
  std::vector<int64_t> at(requests.size(), -1);
  int64_t best = 0;
  const std::function<void(size_t)> choose = [&](size_t i) {
    if (i == requests.size()) {
      best = std::max(best, placed_worth(requests, at));
      return;
    }
    for (int64_t address = -kUnit; address + requests[i].bytes <= capacity || address < 0; address += kUnit) {
      at[i] = address < 0 ? -1 : address;
      if (address >= 0) {
        const std::vector<LxRequest> some(requests.begin(), requests.begin() + static_cast<int64_t>(i) + 1);
        const std::vector<int64_t> placed(at.begin(), at.begin() + static_cast<int64_t>(i) + 1);
        if (!valid(some, placed, capacity)) continue;
      }
      choose(i + 1);
    }
    at[i] = -1;
  };
  choose(0);
  return best;
}

std::vector<LxRequest> random_requests(std::mt19937& random, int32_t count, int64_t largest, int32_t span) {
  std::vector<LxRequest> requests;
  for (int32_t i = 0; i < count; ++i) {
    LxRequest r;
    r.bytes = kUnit * (1 + static_cast<int64_t>(random() % static_cast<uint64_t>(largest)));
    r.first = static_cast<int32_t>(random() % static_cast<uint32_t>(span));
    r.last = r.first + static_cast<int32_t>(random() % 4);
    r.worth = r.bytes * (1 + static_cast<int64_t>(random() % 3));
    for (int32_t j = 0; j < i; ++j) {
      if (requests[j].last == r.first && random() % 2 == 0) r.replaces.push_back(j);
    }
    requests.push_back(r);
  }
  return requests;
}

TEST(PlaceLx, AgainstTheBestOfSmallCases) {
  std::mt19937 random(3);
  int64_t best = 0, first_fit = 0, annealed = 0;
  int optimal = 0;
  constexpr int kRounds = 150;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<LxRequest> requests = random_requests(random, 6, 4, 5);
    const int64_t capacity = 7 * kUnit, most = best_worth(requests, capacity);
    const auto by_worth = place_lx(requests, capacity),
               by_annealing = place_lx(requests, capacity, LxSolver::kAnnealing);
    ASSERT_TRUE(valid(requests, by_worth, capacity)) << "round " << round;
    ASSERT_TRUE(valid(requests, by_annealing, capacity)) << "round " << round;
    ASSERT_LE(placed_worth(requests, by_worth), most);
    ASSERT_LE(placed_worth(requests, by_annealing), most);
    ASSERT_GE(placed_worth(requests, by_annealing), placed_worth(requests, by_worth));
    best += most;
    first_fit += placed_worth(requests, by_worth);
    annealed += placed_worth(requests, by_annealing);
    optimal += placed_worth(requests, by_annealing) == most;
  }
  EXPECT_GE(optimal, kRounds * 95 / 100);
  EXPECT_GE(static_cast<double>(annealed), 0.99 * static_cast<double>(best));
  EXPECT_GE(static_cast<double>(first_fit), 0.9 * static_cast<double>(best));
  EXPECT_LT(first_fit, best);  // or annealing has nothing to do
}

TEST(PlaceLx, NeverOverlapsInLargeOnes) {
  std::mt19937 random(5);
  for (int round = 0; round < 30; ++round) {
    const std::vector<LxRequest> requests = random_requests(random, 60, 40, 30);
    for (const int64_t capacity : {40 * kUnit, 200 * kUnit}) {
      const auto by_worth = place_lx(requests, capacity);
      const auto by_annealing = place_lx(requests, capacity, LxSolver::kAnnealing);
      EXPECT_TRUE(valid(requests, by_worth, capacity));
      EXPECT_TRUE(valid(requests, by_annealing, capacity));
      EXPECT_GE(placed_worth(requests, by_annealing), placed_worth(requests, by_worth));
    }
  }
}

//   op     0 1 2 3        capacity 3
//   a  2   #-#            b begins where a ends: in place, or there is no room for it
//   b  2     #-#
//   c  1   #-----#
TEST(PlaceLx, ReplacesAtTheSameAddressAndNowhereElse) {
  std::vector<LxRequest> requests = {{.bytes = 2 * kUnit, .first = 0, .last = 1, .worth = 20, .replaces = {}},
                                     {.bytes = 2 * kUnit, .first = 1, .last = 2, .worth = 10, .replaces = {0}},
                                     {.bytes = kUnit, .first = 0, .last = 3, .worth = 30, .replaces = {}}};
  EXPECT_EQ(place_lx(requests, 3 * kUnit), (std::vector<int64_t>{kUnit, kUnit, 0}));
  requests[1].replaces.clear();
  EXPECT_EQ(place_lx(requests, 3 * kUnit), (std::vector<int64_t>{kUnit, -1, 0}));
  // Nor over what somebody reads later.
  requests[1].replaces = {0};
  requests[0].last = 2;
  EXPECT_EQ(place_lx(requests, 3 * kUnit), (std::vector<int64_t>{kUnit, -1, 0}));
  requests[0].last = 1;
  // What is larger than the thing it would replace cannot.
  requests[1].replaces = {0};
  requests[1].bytes = 2 * kUnit + 1;
  EXPECT_EQ(place_lx(requests, 4 * kUnit), (std::vector<int64_t>{kUnit, -1, 0}));
}

TEST(PlaceLx, AddressesAreWholeSticks) {
  const std::vector<LxRequest> requests = {{.bytes = 100, .first = 0, .last = 1, .worth = 3, .replaces = {}},
                                           {.bytes = 100, .first = 0, .last = 1, .worth = 2, .replaces = {}}};
  EXPECT_EQ(place_lx(requests, 1000), (std::vector<int64_t>{0, 128}));
  EXPECT_EQ(place_lx(requests, 227), (std::vector<int64_t>{0, -1}));
}

}  // namespace
}  // namespace spyre::compiler
