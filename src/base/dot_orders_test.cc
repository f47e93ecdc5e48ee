#include "base/dot_orders.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "base/error.h"
#include "base/half.h"

namespace spyre {
namespace {

std::vector<uint16_t> bf16(std::initializer_list<float> values) {
  std::vector<uint16_t> out;
  for (float v : values) out.push_back(f32_to_bf16(v));
  return out;
}

// 2^24 + 1 = 2^24 in fp32: whether the small terms survive shows the order.
TEST(DotOrders, EachOrderGivesItsOwnResult) {
  const float big = 16777216.0f;
  const auto ones = bf16({1, 1, 1, 1});
  const auto b = bf16({big, 1, 1, 1});
  EXPECT_EQ(dot_pair(ones.data(), b.data(), 4), big);      // each 1 added alone to big is lost
  EXPECT_EQ(dot_tile(ones.data(), b.data(), 4), big + 2);  // (big + 1) + (1 + 1)
  const std::vector<uint16_t> half_ones(4, f32_to_f16(1));
  const std::vector<uint16_t> h = {f32_to_f16(2048), f32_to_f16(0.0001f), f32_to_f16(-2048), f32_to_f16(1)};
  float expected = 0;
  for (uint16_t v : h) expected += f16_to_f32(v);
  EXPECT_EQ(dot_sequential_f16(half_ones.data(), h.data(), 4), expected);
}

TEST(DotOrders, PairTakesTheOddElementFirst) {
  const float big = 16777216.0f;
  const auto ones = bf16({1, 1});
  // Accumulator 1, even 1, odd 2^24: (1 + 2^24) + 1 = 2^24; even first would give (1 + 1) + 2^24.
  const auto b = bf16({1, big});
  EXPECT_EQ(dot_pair(ones.data(), b.data(), 2, 1, 1.0f), big);
  const auto other = bf16({big, 1});
  EXPECT_EQ(dot_pair(ones.data(), other.data(), 2, 1, 1.0f), big + 2);
}

TEST(DotOrders, TileAddsEvenAndOddSumsPerThirtyTwo) {
  std::vector<uint16_t> a(64, f32_to_bf16(1)), b(64, f32_to_bf16(0));
  const float big = 16777216.0f;
  b[0] = f32_to_bf16(big);
  b[1] = b[3] = b[5] = f32_to_bf16(1);  // odd sum 3: big + 3 rounds to big + 4
  EXPECT_EQ(dot_tile(a.data(), b.data(), 64), big + 4);
  EXPECT_EQ(dot_pair(a.data(), b.data(), 64), big);
}

TEST(DotOrders, SplittingAtBlocksGoesOnFromThePartialSum) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> a(129), b(129);
  for (auto& v : a) v = f32_to_bf16(normal(random));
  for (auto& v : b) v = f32_to_bf16(normal(random));
  for (DotOrder order : {DotOrder::kPair, DotOrder::kTile}) {
    const float first = dot(order, a.data(), b.data(), 64);
    EXPECT_EQ(dot(order, a.data() + 64, b.data() + 64, 65, 1, first), dot(order, a.data(), b.data(), 129));
  }
}

TEST(DotOrders, StrideWalksAColumn) {
  const auto a = bf16({1, 2, 3});
  const auto b = bf16({1, 9, 10, 9, 100, 9});
  EXPECT_EQ(dot_pair(a.data(), b.data(), 3, 2), 321.0f);
  EXPECT_EQ(dot_tile(a.data(), b.data(), 3, 2), 321.0f);
}

TEST(DotOrders, ShortFmaEqualsTheRealOne) {
  ScopedFlushDenormals flush;
  std::mt19937 random(11);
  for (int i = 0; i < 200000; ++i) {
    const float a = bf16_to_f32(static_cast<uint16_t>(random()));
    const float b = bf16_to_f32(static_cast<uint16_t>(random()));
    const float c = std::bit_cast<float>(static_cast<uint32_t>(random()));
    const float got = fma_of_16bit(a, b, c), want = std::fma(a, b, c);
    ASSERT_TRUE((std::isnan(got) && std::isnan(want)) || std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(want))
        << a << " * " << b << " + " << c;
  }
}

TEST(DotOrders, AutoFollowsTheUncappedMachine) {
  const CpuFeatures amx = CpuFeatures::of(CpuLevel::kAmx), zen = CpuFeatures::of(CpuLevel::kAvx512Bf16);
  EXPECT_EQ(resolve_order(DType::kBF16, OrderChoice::kAuto, amx), DotOrder::kTile);
  EXPECT_EQ(resolve_order(DType::kBF16, OrderChoice::kAuto, zen), DotOrder::kPair);
  EXPECT_EQ(resolve_order(DType::kBF16, OrderChoice::kPair, amx), DotOrder::kPair);
  EXPECT_EQ(resolve_order(DType::kBF16, OrderChoice::kTile, zen), DotOrder::kTile);
  EXPECT_EQ(resolve_order(DType::kF16, OrderChoice::kTile, amx), DotOrder::kSequential);
  EXPECT_EQ(resolve_order(DType::kF32, OrderChoice::kAuto, amx), DotOrder::kSequential);
  EXPECT_THROW(parse_order_choice("fast"), Error);
}

}  // namespace
}  // namespace spyre
