// bf16 `pair` on vdpbf16ps: sixteen pairs of products and sums in one instruction, in exactly the order of the name.
#include "plugins/spyre/kernels/gemm_call.h"

#if defined(__AVX512BF16__)

#include <immintrin.h>

namespace spyre::kernels {
namespace {

#define SPYRE_UNROLL _Pragma("GCC unroll 16")

// Blocking as in gemm_fma-inl.h, with `a` copied (not widened) into scratch: that gives an odd K its zero and rows that
// are never 4 KiB apart, and costs one 64-byte load and store per 32 elements of `a`, against 12 or more instructions
// of arithmetic. As `a` stays 16-bit, a K block is twice as long: 294 KiB of `a` and 192 KiB of a panel, which with the
// next one fit the 1 MiB and more of L2 that CPUs with these instructions have.
constexpr int64_t kMaxRows = 6;  // 6 x 4 accumulators, 4 weights, 1 broadcast of 32 registers
constexpr int64_t kRowBlock = 96;
constexpr int64_t kKBlock = 1536;
constexpr int64_t kStripPanels = 4;
constexpr int64_t kAElements = kRowBlock * (kKBlock + 32);
constexpr int64_t kPartialFloats = kRowBlock * kStripPanels * 64;
static_assert(kAElements * 2 + kPartialFloats * 4 <= kGemmScratchBytes);

// What a row tile asks for while it multiplies. The first tile to meet a panel block that nobody has asked for reads it
// 4 KiB ahead (see Ahead in gemm_fma-inl.h; one row alone keeps enough loads in flight). The others bring the
// next block along, one or two lines with each pair row, so that memory works while they compute: when only the first
// of three tiles waits for memory, it waits for all of it.
enum class Ahead { kSame, kNextLine, kNextTwo };

// Where the sums of a row tile begin and end. `kSums`: in fp32 memory. `kResult`: at zero, and rounded in the result
// itself: where K is one block, a result that takes the way through memory costs 72 loads and stores per tile more, and
// its stores come in one burst that no arithmetic hides.
enum class Through { kSums, kResult };

constexpr int64_t kSumBytes = 4 * 16, kResultBytes = 2 * 16;  // of a vector

// `c` is the first vector of the tile, its rows |row_bytes| apart.
template <int R, int C, Ahead kAhead, Through kThrough>
__attribute__((noinline)) void tile(const uint16_t* a, int64_t a_stride, const uint16_t* b, int64_t pairs, char* c,
                                    int64_t row_bytes, const uint16_t* next) {
  __m512 acc[R][C];
  SPYRE_UNROLL
  for (int r = 0; r < R; ++r) {
    SPYRE_UNROLL
    for (int j = 0; j < C; ++j) {
      acc[r][j] =
          kThrough == Through::kResult ? _mm512_setzero_ps() : _mm512_loadu_ps(c + r * row_bytes + kSumBytes * j);
    }
  }
  for (int64_t p = 0; p < pairs; ++p) {
    if constexpr (kAhead != Ahead::kSame) {
      __builtin_prefetch(next + 128 * p, 0, 2);
      if constexpr (kAhead == Ahead::kNextTwo) __builtin_prefetch(next + 128 * p + 32, 0, 2);
    } else if constexpr (R > 1) {
      SPYRE_UNROLL
      for (int i = 0; i < 4; ++i) __builtin_prefetch(b + 2048 + 32 * i);
    }
    __m512bh w[C];
    SPYRE_UNROLL
    for (int j = 0; j < C; ++j) w[j] = (__m512bh)_mm512_loadu_si512(b + 32 * j);
    SPYRE_UNROLL
    for (int r = 0; r < R; ++r) {
      int pair;
      __builtin_memcpy(&pair, a + r * a_stride + 2 * p, 4);
      const __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
      SPYRE_UNROLL
      for (int j = 0; j < C; ++j) acc[r][j] = _mm512_dpbf16_ps(acc[r][j], x, w[j]);
    }
    b += 128;
  }
  SPYRE_UNROLL
  for (int r = 0; r < R; ++r) {
    SPYRE_UNROLL
    for (int j = 0; j < C; ++j) {
      if constexpr (kThrough == Through::kResult) {
        _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(c + r * row_bytes + kResultBytes * j),
                            (__m256i)_mm512_cvtneps_pbh(acc[r][j]));
      } else {
        _mm512_storeu_ps(c + r * row_bytes + kSumBytes * j, acc[r][j]);
      }
    }
  }
}

using Tile = void (*)(const uint16_t*, int64_t, const uint16_t*, int64_t, char*, int64_t, const uint16_t*);
template <int R, Ahead A>
constexpr Tile kSums[4] = {tile<R, 1, A, Through::kSums>, tile<R, 2, A, Through::kSums>, tile<R, 3, A, Through::kSums>,
                           tile<R, 4, A, Through::kSums>};
template <Ahead A>
constexpr const Tile* kSumTiles[6] = {kSums<1, A>, kSums<2, A>, kSums<3, A>, kSums<4, A>, kSums<5, A>, kSums<6, A>};
template <Ahead A>
constexpr Tile kResultTiles[6] = {tile<1, 4, A, Through::kResult>, tile<2, 4, A, Through::kResult>,
                                  tile<3, 4, A, Through::kResult>, tile<4, 4, A, Through::kResult>,
                                  tile<5, 4, A, Through::kResult>, tile<6, 4, A, Through::kResult>};

// What the tiles of one panel block write.
struct Target {
  char* at = nullptr;  // of the first row
  int64_t row_bytes = 0;
  Through through = Through::kSums;
};

template <Ahead A>
Tile tile_for(Through through, int64_t height, int64_t vectors) {
  return through == Through::kResult ? kResultTiles<A>[height - 1] : kSumTiles<A>[height - 1][vectors - 1];
}

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
int64_t min_of(int64_t a, int64_t b) {
  return a < b ? a : b;
}

__mmask16 lanes_below(int64_t n) {
  return n >= 16 ? __mmask16(0xffff) : __mmask16((1u << n) - 1u);
}

// Columns up to `end` are asked for; vectors [v0, v1) hold the last of them.
void begin(const GemmCall& g, int64_t row, int64_t rows, int64_t v0, int64_t v1, int64_t end, float* c) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t v = v0; v < v1; ++v, c += 16) {
      const float* from = static_cast<const float*>(g.out) + (row + r) * g.ldo + v * 16;
      _mm512_storeu_ps(c, g.accumulate ? _mm512_maskz_loadu_ps(lanes_below(end - v * 16), from) : _mm512_setzero_ps());
    }
  }
}

void finish(const GemmCall& g, int64_t row, int64_t rows, int64_t v0, int64_t v1, int64_t end, const float* c) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t v = v0; v < v1; ++v, c += 16) {
      const __mmask16 lanes = lanes_below(end - v * 16);
      const int64_t at = (row + r) * g.ldo + v * 16;
      const __m512 x = _mm512_loadu_ps(c);
      if (g.store == GemmStore::kF32) {
        _mm512_mask_storeu_ps(static_cast<float*>(g.out) + at, lanes, x);
      } else {
        _mm256_mask_storeu_epi16(static_cast<uint16_t*>(g.out) + at, lanes, (__m256i)_mm512_cvtneps_pbh(x));
      }
    }
  }
}

void copy_a(const GemmCall& g, int64_t row, int64_t rows, int64_t k0, int64_t k, uint16_t* to, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r) {
    uint16_t* out = to + r * stride;
    __builtin_memcpy(out, g.a + (row + r) * g.lda + k0, static_cast<unsigned long>(k) * 2);
    if (k % 2 != 0) out[k] = 0;
  }
}

// How a row block goes through K, and where its operands lie in scratch.
struct RowBlock {
  const GemmCall& g;
  int64_t row, rows;
  int64_t k_blocks, k_block, a_stride, panel_elements;
  uint16_t* a;
  float* partial;
  bool prepared = false;            // one K block: `a` is copied once for all columns
  const uint16_t* asked = nullptr;  // the panel block that has been asked for

  RowBlock(const GemmCall& call, int64_t first, int64_t count) : g(call), row(first), rows(count) {
    const int64_t k_limit = rows <= kMaxRows ? (kAElements / rows - 32) / 32 * 32 : kKBlock;
    k_blocks = g.k > 0 ? ceil_div(g.k, k_limit) : 1;
    k_block = ceil_div(ceil_div(g.k, k_blocks), 32) * 32;
    a_stride = k_block + 32;
    panel_elements = ceil_div(g.k, 2) * 128;
    a = static_cast<uint16_t*>(gemm_scratch());
    partial = reinterpret_cast<float*>(a + kAElements);
  }
};

// One row block advances over a panel block in row tiles of equal height: 16 rows are 5 + 5 + 6. `next`: the panel
// block after this one, or null.
void multiply(RowBlock& block, const uint16_t* b, int64_t vectors, int64_t pairs, const Target& target,
              const uint16_t* next) {
  const int64_t tiles = ceil_div(block.rows, kMaxRows);
  const bool known = block.asked == b;  // or the first tile has to wait for memory
  // Lines of a pair row that a tile asks for: four in all, so two by each of two tiles, or one by each of four.
  const bool two = tiles - !known < 4;
  block.asked = nullptr;
  for (int64_t t = 0, done = 0, lines = 0; t < tiles; ++t) {
    const int64_t height = (block.rows - done) / (tiles - t);
    const bool asks = next != nullptr && lines < 4 && (known ? tiles > 1 : t > 0);
    const auto choose = !asks ? tile_for<Ahead::kSame> : two ? tile_for<Ahead::kNextTwo> : tile_for<Ahead::kNextLine>;
    choose(target.through, height, vectors)(block.a + done * block.a_stride, block.a_stride, b, pairs,
                                            target.at + done * target.row_bytes, target.row_bytes,
                                            asks ? next + 32 * lines : b);
    if (asks) {
      lines += two ? 2 : 1;
      block.asked = next;
    }
    done += height;
  }
}

// The panel block behind the one that ends at vector `next`, in K block i of the strip [v0, v1): of the strip's next
// panel, its first one's next K block, or the next strip.
const uint16_t* after_panel(const RowBlock& block, int64_t i, int64_t v0, int64_t v1, int64_t next, int64_t end) {
  const uint16_t* panels = block.g.panels;
  if (next < v1) return panels + next / 4 * block.panel_elements + i * block.k_block * 64;
  if (i + 1 < block.k_blocks) return panels + v0 / 4 * block.panel_elements + (i + 1) * block.k_block * 64;
  return v1 * 16 < end ? panels + v1 / 4 * block.panel_elements : nullptr;
}

// One whole panel whose sums are complete after one K block, and are to be rounded.
bool is_direct(const RowBlock& block, int64_t v0, int64_t v1, int64_t end) {
  return block.k_blocks == 1 && v1 - v0 == 4 && v0 % 4 == 0 && v1 * 16 <= end && block.g.store == GemmStore::kRounded16;
}

Target result_of(const GemmCall& g, int64_t row, int64_t vector) {
  return {static_cast<char*>(g.out) + 2 * row * g.ldo + vector * kResultBytes, 2 * g.ldo, Through::kResult};
}

// Vectors [v0, v1) of one strip, from the first K block to the last.
void run_strip(RowBlock& block, int64_t v0, int64_t v1, int64_t end) {
  const GemmCall& g = block.g;
  const int64_t sum_bytes = (v1 - v0) * kSumBytes;
  const bool direct = is_direct(block, v0, v1, end);
  if (!direct) begin(g, block.row, block.rows, v0, v1, end, block.partial);
  for (int64_t i = 0; i < block.k_blocks; ++i) {
    const int64_t k0 = i * block.k_block;
    const int64_t k = min_of(block.k_block, g.k - k0);
    if (!block.prepared) {
      copy_a(g, block.row, block.rows, k0, k, block.a, block.a_stride);
      block.prepared = block.k_blocks == 1;
    }
    for (int64_t v = v0, next; v < v1; v = next) {
      next = min_of((v / 4 + 1) * 4, v1);
      const uint16_t* b = g.panels + v / 4 * block.panel_elements + k0 * 64 + v % 4 * 32;
      const Target target = direct ? result_of(g, block.row, v)
                                   : Target{reinterpret_cast<char*>(block.partial) + (v - v0) * kSumBytes, sum_bytes};
      multiply(block, b, next - v, ceil_div(k, 2), target, after_panel(block, i, v0, v1, next, end));
    }
  }
  if (!direct) finish(g, block.row, block.rows, v0, v1, end, block.partial);
}

void run_row_block(const GemmCall& g, int64_t row, int64_t rows) {
  RowBlock block(g, row, rows);
  const int64_t strip = (block.k_blocks == 1 ? 1 : kStripPanels) * 4;
  for (int64_t r = 0; r <= g.more_count; ++r) {
    const GemmRange range = r == 0 ? GemmRange{g.first_column, g.columns} : g.more[r - 1];
    const int64_t end = range.first_column + range.columns, v_end = ceil_div(end, 16);
    for (int64_t v0 = range.first_column / 16, v1; v0 < v_end; v0 = v1) {
      v1 = min_of(v_end, (v0 / strip + 1) * strip);
      run_strip(block, v0, v1, end);
    }
  }
}

}  // namespace

void gemm_bf16_pair_avx512_bf16(const GemmCall& g) {
  const int64_t blocks = ceil_div(g.rows, kRowBlock);
  for (int64_t i = 0, row = 0; i < blocks; ++i) {
    const int64_t rows = (g.rows - row) / (blocks - i);
    run_row_block(g, row, rows);
    row += rows;
  }
}

}  // namespace spyre::kernels

#endif
