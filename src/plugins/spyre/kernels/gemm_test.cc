#include <algorithm>
#include <thread>

#include "base/error.h"
#include "plugins/spyre/kernels/gemm_testing.h"

namespace spyre::kernels {
namespace {

using testing::Product;
using testing::same_bits;

// Every kernel that this machine runs, against the naive loop of its order.
class GemmKernel : public ::testing::TestWithParam<GemmKernels> {
 protected:
  const GemmKernels& kernel() const { return GetParam(); }
  Product product(int64_t rows, int64_t k, int64_t n, uint32_t seed, int64_t lda_extra = 0) const {
    return Product::random(kernel().dtype, kernel().order, rows, k, n, seed, lda_extra);
  }
  ScopedFlushDenormals flush_;
};

INSTANTIATE_TEST_SUITE_P(Here, GemmKernel, ::testing::ValuesIn(testing::kernels_here()),
                         [](const auto& info) { return std::string(info.param.name); });

const std::vector<int64_t> kRows = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 32, 33, 64, 65};

TEST_P(GemmKernel, EqualsTheNaiveLoopForEveryRowCountAndK) {
  for (int64_t k : {1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 576, 1000}) {
    const Product p = product(65, k, 80, static_cast<uint32_t>(k));
    for (int64_t rows : kRows) ASSERT_TRUE(p.check(kernel().gemm, rows));
  }
}

TEST_P(GemmKernel, EqualsTheNaiveLoopForRaggedColumns) {
  for (int64_t n : {1, 2, 15, 16, 17, 31, 33, 47, 48, 49, 63, 64, 65, 79, 127, 128, 129, 200}) {
    const Product p = product(17, 37, n, static_cast<uint32_t>(n));
    for (int64_t rows : {1, 2, 3, 6, 7, 17}) ASSERT_TRUE(p.check(kernel().gemm, rows));
  }
}

TEST_P(GemmKernel, BlocksOverRowsKAndStripsOfColumns) {
  // More than one block of rows (96 or 128), of K (768 to 2048) and strip of panels (4), uneven everywhere.
  const Product p = product(197, 2100, 275, 3);
  for (int64_t rows : {1, 5, 7, 97, 129, 197}) ASSERT_TRUE(p.check(kernel().gemm, rows));
  // A single row goes through scratch in pieces as well: 96 x 1568 elements fit.
  const Product one = product(1, 151000, 17, 4);
  ASSERT_TRUE(one.check(kernel().gemm, 1));
}

TEST_P(GemmKernel, EmptyKGivesZeros) {
  const Product p = product(3, 0, 20, 5);
  ASSERT_TRUE(p.check(kernel().gemm, 3));
}

TEST_P(GemmKernel, ReadsRowsOfAnyAlignmentAndStride) {
  Product p = product(20, 65, 70, 6, 7);
  for (int64_t shift : {0, 1, 3}) {
    std::vector<uint16_t> moved(p.a.size() + 8);
    std::copy(p.a.begin(), p.a.end(), moved.begin() + shift);
    std::vector<float> out(20 * 70);
    GemmCall c = p.call(out.data(), 70);
    c.a = moved.data() + shift;
    kernel().gemm(c);
    for (size_t i = 0; i < out.size(); ++i)
      ASSERT_TRUE(same_bits(out[i], p.want[i])) << "shift " << shift << " at " << i;
  }
}

TEST_P(GemmKernel, RoundsOnceToSixteenBits) {
  const Product p = product(19, 65, 77, 7);
  std::vector<uint16_t> out(19 * 80, 0xabcd);
  kernel().gemm(p.call(out.data(), 80, GemmStore::kRounded16));
  for (int64_t m = 0; m < 19; ++m) {
    for (int64_t n = 0; n < 80; ++n) {
      const float exact = n < 77 ? p.want[static_cast<size_t>(m * 77 + n)] : 0;
      const uint16_t expected = n < 77 ? testing::round16(kernel().dtype, exact) : uint16_t{0xabcd};
      ASSERT_EQ(out[static_cast<size_t>(m * 80 + n)], expected) << m << "," << n;
    }
  }
}

// Rounded results of one block of rows and K, and of several, in ranges that begin and end anywhere in a panel.
TEST_P(GemmKernel, RoundsInEveryBlockAndRange) {
  std::mt19937 random(21);
  const Product shallow = product(197, 150, 275, 22), deep = product(101, 1700, 275, 23);
  for (const Product* p : {&shallow, &deep}) {
    for (int64_t rows : {1, 6, 13, 101, 197}) {
      if (rows > p->rows) continue;
      const std::vector<GemmRange> ranges = testing::random_ranges(275, random);
      std::vector<uint16_t> out(static_cast<size_t>(rows * 275), 0xabcd), want = out;
      GemmCall c = p->call(out.data(), 275, GemmStore::kRounded16);
      c.rows = rows;
      c.first_column = ranges[0].first_column;
      c.columns = ranges[0].columns;
      c.more = ranges.data() + 1;
      c.more_count = std::ssize(ranges) - 1;
      kernel().gemm(c);
      for (const GemmRange& range : ranges) {
        for (int64_t i = 0; i < rows * range.columns; ++i) {
          const auto at = static_cast<size_t>(i / range.columns * 275 + range.first_column + i % range.columns);
          want[at] = testing::round16(kernel().dtype, p->want[at]);
        }
      }
      ASSERT_EQ(out, want) << rows << " rows, k " << p->k;
    }
  }
}

TEST_P(GemmKernel, RoundsEveryKindOfValueAsTheScalarDoes) {
  // Sums of two products of any bits: some need rounding, some overflow or fall below the normal range.
  std::mt19937 random(8);
  for (int round = 0; round < 300; ++round) {
    const int64_t k = 2;
    Product q(kernel().dtype, kernel().order, 2, k, 64, k, testing::any_bits(2 * k, random()),
              testing::any_bits(64 * k, random()));
    std::vector<uint16_t> out(2 * 64);
    kernel().gemm(q.call(out.data(), 64, GemmStore::kRounded16));
    for (size_t i = 0; i < out.size(); ++i) {
      const uint16_t expected = testing::round16(kernel().dtype, q.want[i]);
      const bool both_nan = std::isnan(testing::widen16(kernel().dtype, out[i])) && std::isnan(q.want[i]);
      ASSERT_TRUE(both_nan || out[i] == expected) << q.want[i] << " gives " << out[i] << ", not " << expected;
    }
  }
}

TEST_P(GemmKernel, GoesOnFromThePartialSumsInOut) {
  const Product p = product(18, 128, 70, 9);
  std::vector<float> out(18 * 70);
  // K = 64 + 64 in two calls; the second half's panels are packed apart.
  const PanelLayout half{kernel().order, 64, 70};
  std::vector<uint16_t> panels(static_cast<size_t>(half.elements()));
  for (int64_t part = 0; part < 2; ++part) {
    pack_panels(half, SourceOrder::kInOut, p.w.data() + part * 64 * 70, 70, 0, 70, panels.data());
    GemmCall c = p.call(out.data(), 70);
    c.a += part * 64;
    c.panels = panels.data();
    c.k = 64;
    c.accumulate = part == 1;
    kernel().gemm(c);
  }
  for (size_t i = 0; i < out.size(); ++i) ASSERT_TRUE(same_bits(out[i], p.want[i])) << i;
}

TEST_P(GemmKernel, TreatsSpecialValuesAsTheScalarDoes) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const int64_t k = 1 + seed * 3 % 70, n = 64 + seed % 5, rows = 1 + seed % 18;
    Product all(kernel().dtype, kernel().order, rows, k, n, k, testing::any_bits(rows * k, seed),
                testing::any_bits(k * n, seed + 100));
    ASSERT_TRUE(all.check(kernel().gemm, rows)) << "seed " << seed;
    // Mostly ordinary values with few special ones, so that not every sum is NaN.
    auto a = testing::normal_values(kernel().dtype, rows * k, seed),
         w = testing::normal_values(kernel().dtype, k * n, seed);
    const uint16_t specials[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x0070, static_cast<uint16_t>(0x7c00),
                                 0x7f80, 0xff80, 0x7e01};
    for (int i = 0; i < 8; ++i) {
      a[(seed * 31 + static_cast<size_t>(i) * 17) % a.size()] = specials[(seed + static_cast<size_t>(i)) % 9];
      w[(seed * 13 + static_cast<size_t>(i) * 29) % w.size()] = specials[(seed + static_cast<size_t>(i) * 5) % 9];
    }
    Product few(kernel().dtype, kernel().order, rows, k, n, k, a, w);
    ASSERT_TRUE(few.check(kernel().gemm, rows)) << "seed " << seed;
  }
}

// Ten million random products per kernel: every exponent, every sign, and an accumulator of any bits.
TEST_P(GemmKernel, KeepsItsOrderAtExtremeExponents) {
  const int64_t k = kernel().order == DotOrder::kTile ? 32 : 2;
  const int64_t products_per_call = 64 * 64 * k;
  std::mt19937 random(10);
  std::vector<float> out(64 * 64), start(64 * 64);
  const int64_t calls = 10'000'000 / products_per_call + 1;
  for (int64_t i = 0; i < calls; ++i) {
    auto a = testing::any_bits(64 * k, random()), w = testing::any_bits(k * 64, random());
    if (kernel().dtype == DType::kBF16) {  // no infinities and NaNs, or most long sums would be NaN
      for (auto* v : {&a, &w}) {
        for (auto& x : *v) x = (x & 0x7f80) == 0x7f80 ? static_cast<uint16_t>(x ^ 0x4000) : x;
      }
    }
    const PanelLayout layout{kernel().order, k, 64};
    std::vector<uint16_t> panels(static_cast<size_t>(layout.elements()));
    pack_panels(layout, SourceOrder::kInOut, w.data(), 64, 0, 64, panels.data());
    for (auto& x : start) x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    out = start;
    kernel().gemm({.a = a.data(),
                   .lda = k,
                   .rows = 64,
                   .panels = panels.data(),
                   .k = k,
                   .first_column = 0,
                   .columns = 64,
                   .out = out.data(),
                   .ldo = 64,
                   .accumulate = true});
    for (int64_t m = 0; m < 64; ++m) {
      for (int64_t n = 0; n < 64; ++n) {
        const size_t at = static_cast<size_t>(m * 64 + n);
        const float want = dot(kernel().order, a.data() + m * k, w.data() + n, k, 64, start[at]);
        ASSERT_TRUE(same_bits(out[at], want))
            << "call " << i << " (" << m << ", " << n << "): " << out[at] << ", not " << want << ", from " << start[at];
      }
    }
  }
}

TEST_P(GemmKernel, AnySplitOfColumnsAndRowsOverThreadsGivesEqualBits) {
  const Product p = product(23, 100, 300, 11);
  std::mt19937 random(12);
  for (int round = 0; round < 6; ++round) {
    std::vector<float> out(23 * 300, -1.0f);
    std::vector<GemmCall> calls;
    for (int64_t column = 0; column < 300;) {
      const int64_t columns = std::min<int64_t>(300 - column, 16 * (1 + random() % 8));
      for (int64_t row = 0; row < 23;) {
        const int64_t rows = std::min<int64_t>(23 - row, 1 + random() % 23);
        GemmCall c = p.call(out.data() + row * 300, 300);
        c.a += row * p.lda;
        c.rows = rows;
        c.first_column = column;
        c.columns = columns;
        calls.push_back(c);
        row += rows;
      }
      column += columns;
    }
    const size_t threads = 1 + static_cast<size_t>(round) % 3;
    std::vector<std::thread> team;
    for (size_t t = 0; t < threads; ++t) {
      team.emplace_back([&, t] {
        ScopedFlushDenormals flush;
        for (size_t i = t; i < calls.size(); i += threads) kernel().gemm(calls[i]);
      });
    }
    for (auto& t : team) t.join();
    for (size_t i = 0; i < out.size(); ++i)
      ASSERT_TRUE(same_bits(out[i], p.want[i])) << "round " << round << " at " << i;
  }
}

TEST_P(GemmKernel, FurtherColumnRangesHaveTheBitsOfCallsApart) {
  std::mt19937 random(13);
  // One block of K and of rows; several of each, with strips of four panels (K from 768 to 1536, 96 rows or
  // 128).
  const Product small = product(70, 100, 723, 14), large = product(130, 1700, 600, 15);
  for (int round = 0; round < 12; ++round) {
    for (int64_t rows : {1, 3, 6, 7, 70}) {
      ASSERT_TRUE(small.check_ranges(kernel().gemm, rows, testing::random_ranges(723, random), round % 2 == 1));
    }
    if (round >= 3) continue;
    for (int64_t rows : {1, 9, 130}) {
      ASSERT_TRUE(large.check_ranges(kernel().gemm, rows, testing::random_ranges(600, random), round % 2 == 1));
    }
  }
}

TEST(KernelTable, ChoiceIsPinnedFromAnyMachine) {
  const auto name = [](CpuLevel level, DType dtype, DotOrder order) {
    return std::string(select_kernels(CpuFeatures::of(level), dtype, order).name);
  };
  EXPECT_EQ(name(CpuLevel::kPortable, DType::kF16, DotOrder::kSequential), "f16_portable");
  EXPECT_EQ(name(CpuLevel::kPortable, DType::kBF16, DotOrder::kPair), "bf16_pair_portable");
  EXPECT_EQ(name(CpuLevel::kPortable, DType::kBF16, DotOrder::kTile), "bf16_tile_portable");
#if defined(__x86_64__)
  EXPECT_EQ(name(CpuLevel::kAvx2, DType::kF16, DotOrder::kSequential), "f16_avx2");
  EXPECT_EQ(name(CpuLevel::kAvx2, DType::kBF16, DotOrder::kPair), "bf16_pair_avx2");
  EXPECT_EQ(name(CpuLevel::kAvx2, DType::kBF16, DotOrder::kTile), "bf16_tile_avx2");
  EXPECT_EQ(name(CpuLevel::kAvx512, DType::kF16, DotOrder::kSequential), "f16_avx512");
  EXPECT_EQ(name(CpuLevel::kAvx512, DType::kBF16, DotOrder::kPair), "bf16_pair_avx512");
  EXPECT_EQ(name(CpuLevel::kAvx512Bf16, DType::kF16, DotOrder::kSequential), "f16_avx512");
  EXPECT_EQ(name(CpuLevel::kAvx512Bf16, DType::kBF16, DotOrder::kPair), "bf16_pair_avx512_bf16");
  EXPECT_EQ(name(CpuLevel::kAvx512Bf16, DType::kBF16, DotOrder::kTile), "bf16_tile_avx512");
  // Where there are tiles vdpbf16ps is slow, and so are converts beside multiply-adds.
  EXPECT_EQ(name(CpuLevel::kAmx, DType::kBF16, DotOrder::kPair), "bf16_pair_avx512_wide");
  EXPECT_EQ(name(CpuLevel::kAmx, DType::kF16, DotOrder::kSequential), "f16_avx512_wide");
  EXPECT_EQ(name(CpuLevel::kAmx, DType::kBF16, DotOrder::kTile), "bf16_tile_amx");
#endif
}

TEST(KernelTable, RefusesWhatIsNotBuilt) {
  EXPECT_THROW(select_kernels({}, DType::kF32, DotOrder::kSequential), Error);
  EXPECT_THROW(select_kernels({}, DType::kF16, DotOrder::kPair), Error);
  EXPECT_THROW(select_kernels({}, DType::kBF16, DotOrder::kSequential), Error);
}

TEST(KernelTable, TileSelfTestPassesWhereThereAreTiles) {
  if (!CpuFeatures::detected().amx_bf16) GTEST_SKIP() << "this machine has no AMX";
  EXPECT_TRUE(amx_self_test());
}

}  // namespace
}  // namespace spyre::kernels
