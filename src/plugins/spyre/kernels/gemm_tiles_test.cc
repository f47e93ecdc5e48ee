// The packing and blocking of the AMX kernel over emulated tile registers: it runs, and is compared, on any machine.
#include <cstring>

#include "plugins/spyre/kernels/gemm_testing.h"

namespace spyre::kernels {
namespace {

struct Tile {
  uint8_t bytes[16][64];
};
Tile tiles[8];
bool configured = false;

uint16_t word(const Tile& t, int row, int i) {
  uint16_t w;
  std::memcpy(&w, &t.bytes[row][2 * i], 2);
  return w;
}

struct EmulatedTiles {
  static void configure() { configured = true; }
  template <int t>
  static void load(const void* p, int64_t stride) {
    ASSERT_TRUE(configured);
    for (int r = 0; r < 16; ++r) std::memcpy(tiles[t].bytes[r], static_cast<const char*>(p) + r * stride, 64);
  }
  template <int t>
  static void store(void* p, int64_t stride) {
    for (int r = 0; r < 16; ++r) std::memcpy(static_cast<char*>(p) + r * stride, tiles[t].bytes[r], 64);
  }
  template <int c, int a, int b>
  static void dot() {
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 16; ++n) {
        float even = 0, odd = 0, sum;
        for (int p = 0; p < 16; ++p) {
          even = fma_of_16bit(bf16_to_f32(word(tiles[a], m, 2 * p)), bf16_to_f32(word(tiles[b], p, 2 * n)), even);
          odd = fma_of_16bit(bf16_to_f32(word(tiles[a], m, 2 * p + 1)), bf16_to_f32(word(tiles[b], p, 2 * n + 1)), odd);
        }
        std::memcpy(&sum, &tiles[c].bytes[m][4 * n], 4);
        sum = sum + (even + odd);
        std::memcpy(&tiles[c].bytes[m][4 * n], &sum, 4);
      }
    }
  }
  static void store_bf16(const float* from, uint16_t* to) {
    for (int i = 0; i < 16; ++i) to[i] = f32_to_bf16(from[i]);
  }
};

#include "plugins/spyre/kernels/gemm_tiles-inl.h"

void gemm_emulated(const GemmCall& call) {
  run_tiles<EmulatedTiles>(call);
}

using testing::Product;

TEST(GemmTiles, EqualsTheNaiveLoop) {
  ScopedFlushDenormals flush;
  for (int64_t k : {0, 1, 2, 31, 32, 33, 100}) {
    const Product p = Product::random(DType::kBF16, DotOrder::kTile, 65, k, 83, static_cast<uint32_t>(k), 3);
    for (int64_t rows : {1, 5, 15, 16, 17, 31, 32, 33, 48, 64, 65}) ASSERT_TRUE(p.check(gemm_emulated, rows));
  }
}

TEST(GemmTiles, RaggedColumnsStayInside) {
  ScopedFlushDenormals flush;
  for (int64_t n : {1, 15, 16, 17, 32, 33, 48, 49, 64, 65, 130}) {
    const Product p = Product::random(DType::kBF16, DotOrder::kTile, 33, 40, n, static_cast<uint32_t>(n));
    ASSERT_TRUE(p.check(gemm_emulated, 33));
    // Starting inside a panel: columns from 16 on.
    if (n <= 16) continue;
    std::vector<float> out(static_cast<size_t>(33 * n), -7.5f);
    GemmCall c = p.call(out.data(), n);
    c.first_column = 16;
    c.columns = n - 16;
    gemm_emulated(c);
    for (int64_t i = 0; i < 33 * n; ++i) {
      const float expected = i % n < 16 ? -7.5f : p.want[static_cast<size_t>(i)];
      ASSERT_TRUE(testing::same_bits(out[static_cast<size_t>(i)], expected)) << "n " << n << " at " << i;
    }
  }
}

TEST(GemmTiles, BlocksOverRowsKAndStrips) {
  ScopedFlushDenormals flush;
  const Product p = Product::random(DType::kBF16, DotOrder::kTile, 150, 1100, 275, 1);
  ASSERT_TRUE(p.check(gemm_emulated, 150));
}

TEST(GemmTiles, FurtherColumnRangesHaveTheBitsOfCallsApart) {
  ScopedFlushDenormals flush;
  std::mt19937 random(4);
  const Product small = Product::random(DType::kBF16, DotOrder::kTile, 20, 40, 403, 5);
  const Product large = Product::random(DType::kBF16, DotOrder::kTile, 140, 1060, 83, 6);
  for (int round = 0; round < 6; ++round) {
    ASSERT_TRUE(small.check_ranges(gemm_emulated, 20, testing::random_ranges(403, random), round % 2 == 1));
  }
  ASSERT_TRUE(large.check_ranges(gemm_emulated, 140, {{48, 35}, {0, 32}}, false));
}

TEST(GemmTiles, RowsPastTheMatrixAreNeverRead) {
  ScopedFlushDenormals flush;
  // The rows behind the call hold NaN, and so does what follows each row up to lda.
  Product p = Product::random(DType::kBF16, DotOrder::kTile, 40, 33, 20, 2, 31);
  for (int64_t r = 0; r < 40; ++r) {
    for (int64_t i = r < 17 ? 33 : 0; i < p.lda; ++i) p.a[static_cast<size_t>(r * p.lda + i)] = 0x7fff;
  }
  ASSERT_TRUE(p.check(gemm_emulated, 17));
}

TEST(GemmTiles, AccumulatesAndRounds) {
  ScopedFlushDenormals flush;
  const Product p = Product::random(DType::kBF16, DotOrder::kTile, 20, 33, 20, 3);
  std::vector<float> sums(20 * 20, 2.0f);
  GemmCall c = p.call(sums.data(), 20);
  c.accumulate = true;
  gemm_emulated(c);
  for (int64_t m = 0; m < 20; ++m) {
    for (int64_t n = 0; n < 20; ++n) {
      const float want = dot_tile(p.a.data() + m * p.lda, p.w.data() + n, 33, 20, 2.0f);
      ASSERT_TRUE(testing::same_bits(sums[static_cast<size_t>(m * 20 + n)], want));
    }
  }
  std::vector<uint16_t> rounded(20 * 20);
  gemm_emulated(p.call(rounded.data(), 20, GemmStore::kRounded16));
  for (size_t i = 0; i < rounded.size(); ++i) ASSERT_EQ(rounded[i], f32_to_bf16(p.want[i]));
}

}  // namespace
}  // namespace spyre::kernels
