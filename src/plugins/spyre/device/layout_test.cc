#include "plugins/spyre/device/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "base/error.h"
#include "plugins/spyre/device/placement.h"

namespace spyre::device {
namespace {

using Sizes = std::vector<int64_t>;

void expect(const Layout& layout, const Sizes& device_size, const Sizes& stride_map) {
  EXPECT_EQ(layout.device_size, device_size);
  EXPECT_EQ(layout.stride_map, stride_map);
}

// The examples that are published with the algorithm.
TEST(Layout, PublishedExamples) {
  expect(default_layout(DType::kF16, {1024, 256}), {4, 1024, 64}, {64, 256, 1});
  expect(default_layout(DType::kF16, {5, 100, 150}), {100, 3, 5, 64}, {150, 64, 15000, 1});
  expect(default_layout(DType::kF16, {5, 100, 150}, {1, 0, 2}), {5, 3, 100, 64}, {15000, 64, 150, 1});
  expect(default_layout(DType::kF16, {512, 8, 256}), {8, 4, 512, 64}, {256, 64, 2048, 1});
  expect(default_layout(DType::kF16, {}), {1, 64}, {-1, -1});
  expect(default_layout(DType::kF16, {100}), {2, 64}, {64, 1});
  expect(default_layout(DType::kF32, {100}), {4, 32}, {32, 1});
  // [M, N] by columns.
  expect(default_layout(DType::kF16, {128, 10}, {1, 0}), {2, 10, 64}, {640, 1, 10});
}

TEST(Layout, SticksOfEveryType) {
  const std::map<CardType, int64_t> elements = {
      {CardType::kFp32, 32},     {CardType::kInt32, 32},    {CardType::kDl16, 64}, {CardType::kInt8, 128},
      {CardType::kFp8E4M3, 128}, {CardType::kFp8E5M2, 128}, {CardType::kInt4, 256}};
  ASSERT_EQ(elements.size(), all_card_types().size());
  for (const auto& [type, e] : elements) {
    EXPECT_EQ(stick_elements(type), e);
    EXPECT_EQ(info(type).type, type);
    expect(default_layout(type, {3, 600}), {(600 + e - 1) / e, 3, e}, {e, 600, 1});
    EXPECT_EQ(default_layout(type, {3, 600}).bytes(), (600 + e - 1) / e * 3 * 128) << info(type).name;
  }
}

TEST(Layout, AnyRank) {
  expect(default_layout(DType::kF16, {2, 3, 4, 5, 6, 7, 8, 100}), {3, 4, 5, 6, 7, 8, 2, 2, 64},
         {672000, 168000, 33600, 5600, 800, 100, 64, 2016000 * 1, 1});
}

TEST(Layout, PublishedSparseExamples) {
  const Layout sparse = default_layout(DType::kF16, {77}, {0, -1});
  expect(sparse, {1, 77, 64}, {-1, 1, -1});
  EXPECT_TRUE(sparse.sparse());
  EXPECT_EQ(sparse.bytes(), 77 * 128);
  EXPECT_EQ(sparse.offset(Sizes{5}), 5 * 64);
}

TEST(Layout, APartialStickOccupiesAWholeOne) {
  EXPECT_EQ(default_layout(DType::kF16, {3, 65}).bytes(), 3 * 2 * 128);
  EXPECT_EQ(default_layout(DType::kI32, {33}).bytes(), 2 * 128);
}

TEST(Layout, RefusesWhatIsNoPermutation) {
  for (const std::vector<int>& order : {std::vector<int>{0}, {0, 0}, {0, 2}, {-1, 0}, {0, 1, 2}}) {
    EXPECT_THROW(default_layout(DType::kF16, {2, 3}, order), Error);
  }
}

// The slot of the stick count takes the new dimension, the slot of that dimension the old one.
TEST(Layout, RestickifyChangesTwoSlots) {
  const Layout from = default_layout(DType::kF16, {5, 100, 150});  // [100,3,5,64]
  expect(restickified(from, 1), {150, 2, 5, 64}, {1, 9600, 15000, 150});
  expect(restickified(from, 0), {100, 1, 150, 64}, {150, 75000, 1, 15000});
  EXPECT_EQ(restickified(restickified(from, 0), 2), from);
  EXPECT_EQ(restickified(from, 2), from);
}

TEST(Layout, ExX2KeepsTwoValuesPerStick) {
  const Layout layout = exx2_layout(CardType::kDl16, {5, 7});
  EXPECT_EQ(layout.bytes(), 5 * 7 * 128);
  EXPECT_EQ(layout.offset(Sizes{0, 0, 1}), 1);
  EXPECT_EQ(layout.offset(Sizes{4, 6, 0}) % 64, 0);
}

// The published places: DL16 column 64 p + 8 g + 4 s + e in fp32 stick 2 p + s at 4 g + e, and the other way.
TEST(Layout, CastsStagger) {
  const Layout half = default_layout(CardType::kDl16, {3, 192}), wide = cast_layout(half, CardType::kFp32);
  const Layout fp32 = default_layout(CardType::kFp32, {3, 192}), narrow = cast_layout(fp32, CardType::kDl16);
  expect(wide, {6, 3, 32}, {32, 192, 1});
  expect(narrow, {3, 3, 64}, {64, 192, 1});
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t p = 0; p < 3; ++p) {
      for (int64_t g = 0; g < 8; ++g) {
        for (int64_t s = 0; s < 2; ++s) {
          for (int64_t e = 0; e < 4; ++e) {
            EXPECT_EQ(wide.offset(Sizes{row, 64 * p + 8 * g + 4 * s + e}), ((2 * p + s) * 3 + row) * 32 + 4 * g + e);
            EXPECT_EQ(narrow.offset(Sizes{row, 64 * p + 32 * s + 4 * g + e}), (p * 3 + row) * 64 + 8 * g + 4 * s + e);
          }
        }
      }
    }
  }
  EXPECT_EQ(cast_layout(wide, CardType::kDl16), half);
  EXPECT_EQ(cast_layout(narrow, CardType::kFp32), fp32);
}

TEST(Layout, L28_StaggeredCast) {
  EXPECT_NO_THROW(cast_layout(default_layout(CardType::kDl16, {3, 64}), CardType::kFp32));
  EXPECT_THROW(cast_layout(default_layout(CardType::kDl16, {3, 65}), CardType::kFp32), Error);
  EXPECT_THROW(cast_layout(default_layout(CardType::kFp32, {3, 96}), CardType::kDl16), Error);  // an odd count
  EXPECT_THROW(cast_layout(default_layout(CardType::kDl16, {64}, {0, -1}), CardType::kFp32), Error);
  EXPECT_THROW(cast_layout(exx2_layout(CardType::kDl16, {64}), CardType::kFp32), Error);
}
TEST(Layout, L29_StaggeredIsNotRestickified) {
  const Layout half = default_layout(CardType::kFp32, {64, 128});
  EXPECT_THROW(restickified(cast_layout(half, CardType::kDl16), 0), Error);
}
TEST(Layout, L30_Exx2IsNotRestickified) {
  EXPECT_THROW(restickified(exx2_layout(CardType::kDl16, {64}), 0), Error);
}
TEST(Layout, L23_CardType) {
  EXPECT_EQ(default_layout(DType::kBool, {100}).bytes(), 2 * 128);  // two bytes each
  EXPECT_EQ(default_layout(DType::kI64, {100}).bytes(), 4 * 128);   // narrowed
  for (const DType dtype : {DType::kF64, DType::kU8, DType::kI16}) EXPECT_THROW(default_layout(dtype, {8}), Error);
}

TEST(Layout, PackedSticks) {
  const Layout y = packed_layout(CardType::kFp8E4M3, {100, 200}, {{0, 2}, {1, 64}});
  expect(y, {4, 50, 2, 64}, {64, 400, 200, 1});
  EXPECT_EQ(y.bytes(), 4 * 50 * 128);
  EXPECT_EQ(y.offset(Sizes{3, 65}), ((1 * 50 + 1) * 2 + 1) * 64 + 1);
  const Layout x = packed_layout(CardType::kInt4, {5, 300}, {{1, 16}, {0, 2}, {1, 8}});
  expect(x, {3, 3, 16, 2, 8}, {128, 600, 8, 300, 1});
  EXPECT_EQ(x.offset(Sizes{3, 128 + 17}), (((1 * 3 + 1) * 16 + 2) * 2 + 1) * 8 + 1);
  EXPECT_THROW(packed_layout(CardType::kInt4, {5, 300}, {{1, 16}, {0, 2}}), Error);
  EXPECT_THROW(packed_layout(CardType::kInt8, {5, 300}, {{2, 128}}), Error);
  EXPECT_THROW(packed_layout(CardType::kInt8, {5, 300}, {}), Error);
}

TEST(Layout, L07_ASparseLayoutIsNotRestickified) {
  EXPECT_THROW(restickified(default_layout(DType::kF16, {8, 9}, {0, 1, -1}), 0), Error);
  EXPECT_EQ(restickified(default_layout(DType::kF16, {8, 9}), 0).stick_dim, 0);
}
TEST(Layout, L06_Fp32IsNotRestickified) {
  EXPECT_THROW(restickified(default_layout(DType::kF32, {8, 9}), 0), Error);
}

struct Random {
  std::mt19937 engine{11};
  int64_t below(int64_t n) { return static_cast<int64_t>(engine() % static_cast<uint32_t>(n)); }
};

// Offsets are distinct, within the layout, and stride_map leads from the device coordinate back to the host element.
TEST(Layout, RandomLayoutsAreInvertible) {
  Random random;
  for (int round = 0; round < 500; ++round) {
    const int rank = static_cast<int>(random.below(5));
    Sizes sizes;
    for (int d = 0; d < rank; ++d) sizes.push_back(1 + random.below(d == rank - 1 ? 200 : 9));
    std::vector<int> order(rank);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random.engine);
    if (rank > 0 && random.below(4) == 0) order.push_back(-1);
    const DType dtype = random.below(2) == 0 ? DType::kF16 : DType::kF32;
    const Layout layout = default_layout(dtype, sizes, order);
    const Placement placement = Placement::of(layout);
    std::set<int64_t> seen;
    Sizes at(rank, 0);
    const int64_t elements = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
    for (int64_t host = 0; host < elements; ++host) {
      const int64_t offset = layout.offset(at);
      ASSERT_LT(offset, layout.device_elements());
      ASSERT_TRUE(seen.insert(offset).second) << layout.to_string();
      int64_t rest = offset, decoded = 0, placed = placement.offset;
      for (size_t i = layout.device_size.size(); i-- > 0;) {
        if (layout.stride_map[i] > 0) decoded += rest % layout.device_size[i] * layout.stride_map[i];
        rest /= layout.device_size[i];
      }
      ASSERT_EQ(decoded, host) << layout.to_string();
      for (int d = 0; d < rank; ++d) placed += placement.step(d, at[d]);
      ASSERT_EQ(placed, offset) << layout.to_string();
      for (int d = rank - 1; d >= 0 && ++at[d] == sizes[d]; --d) at[d] = 0;
    }
  }
}

TEST(Placement, SplitsAndMergesOfWholeSticksAreViews) {
  const Placement flat = Placement::of(default_layout(DType::kF16, {8, 9 * 128}));
  const Placement heads = flat.split(1, {9}, 128);
  EXPECT_EQ(heads, Placement::of(default_layout(DType::kF16, {8, 9, 128})));
  EXPECT_EQ(heads.merged(1, {9}, 128), flat);
  // With the heads outermost the sticks of a head are not neighbours.
  EXPECT_EQ(Placement::of(default_layout(DType::kF16, {9, 128})).merged(0, {9}, 128), std::nullopt);
}

TEST(Placement, StaggeredElementsLieWhereTheLayoutHasThem) {
  for (const Layout& layout : {cast_layout(default_layout(CardType::kDl16, {3, 192}), CardType::kFp32),
                               cast_layout(default_layout(CardType::kFp32, {3, 192}), CardType::kDl16)}) {
    const Placement p = Placement::of(layout);
    for (int64_t row = 0; row < 3; ++row) {
      for (int64_t c = 0; c < 192; ++c) EXPECT_EQ(p.step(0, row) + p.step(1, c), layout.offset(Sizes{row, c}));
    }
    EXPECT_EQ(p.sliced(1, 64).step(1, 5) + p.sliced(1, 64).offset, layout.offset(Sizes{0, 69}));
    EXPECT_THROW(p.sliced(1, 32), Error);
  }
}

TEST(Placement, SlicesBeginAtWholeSticks) {
  const Placement p = Placement::of(default_layout(DType::kF16, {8, 256}));
  EXPECT_EQ(p.sliced(1, 128).offset, 2 * 8 * 64);
  EXPECT_EQ(p.sliced(0, 3).offset, 3 * 64);
  EXPECT_THROW(p.sliced(1, 100), Error);
}

}  // namespace
}  // namespace spyre::device
