#include "runner/random.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace spyre::runner {
namespace {

// The answers published with the algorithm (Random123, kat_vectors).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Philox4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Philox4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Philox4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Uniform, StaysInRangeAndFillsIt) {
  std::vector<int> buckets(64, 0);
  constexpr int kDraws = 64000;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const double u = uniform(7, i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ++buckets[static_cast<int>(u * 64)];
  }
  double chi = 0;
  for (const int n : buckets) chi += (n - 1000.0) * (n - 1000.0) / 1000.0;
  EXPECT_LT(chi, 130.0);  // 63 degrees of freedom: p = 1e-6
}

TEST(Uniform, BothHalvesOfKeyAndCounterCount) {
  const std::set<double> draws = {uniform(1, 1), uniform(1 + (1ull << 32), 1), uniform(1, 1 + (1ull << 32)),
                                  uniform(2, 1), uniform(1, 2)};
  EXPECT_EQ(draws.size(), 5u);
}

TEST(TextKey, DependsOnSeedAndText) {
  const std::set<uint64_t> keys = {text_key(0, "a"), text_key(1, "a"),  text_key(0, "b"),
                                   text_key(0, ""),  text_key(0, "ab"), text_key(0, "ba")};
  EXPECT_EQ(keys.size(), 6u);
  EXPECT_EQ(text_key(5, "request-17"), text_key(5, std::string("request-") + "17"));
}

}  // namespace
}  // namespace spyre::runner
