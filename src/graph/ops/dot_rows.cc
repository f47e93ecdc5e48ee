#include "graph/ops/dot_rows.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

namespace spyre::graph {
namespace {

// Columns are taken 16 at a time. A panel is those columns of w as [k][16], zeros past N, so that the inner loop is the
// same for w stored either way, and one pass over it serves several rows of x. At K = 1536 it has 96 KB and stays in
// L2.
constexpr int kColumns = 16;
constexpr int kTileK = 32;  // elements per block of the order `tile`

// Sixteen fp32 lanes. The compiler splits it into what the target has (four SSE registers).
typedef float Lanes __attribute__((vector_size(kColumns * sizeof(float))));

#define SPYRE_INLINE [[gnu::always_inline]] inline

SPYRE_INLINE void load(Lanes& lanes, const float* from) {
  std::memcpy(&lanes, from, sizeof lanes);
}

template <int kRows>
struct Sums {
  Lanes lanes[kRows] = {};
};

// lanes[r] += x[r][i] * panel[i][:]
template <int kRows>
SPYRE_INLINE void step(Sums<kRows>& sums, const float* x, int64_t k, const float* panel, int64_t i) {
  Lanes w;
  load(w, panel + i * kColumns);
  for (int r = 0; r < kRows; ++r) sums.lanes[r] = sums.lanes[r] + x[r * k + i] * w;
}

// The zero element that pads a pair or a tile: it turns a -0 into +0 and changes nothing else.
template <int kRows>
SPYRE_INLINE void add_zero(Sums<kRows>& sums) {
  for (int r = 0; r < kRows; ++r) sums.lanes[r] = sums.lanes[r] + 0.0f;
}

template <int kRows>
SPYRE_INLINE void sum_sequential(Sums<kRows>& c, const float* x, int64_t k, const float* panel) {
  for (int64_t i = 0; i < k; ++i) step(c, x, k, panel, i);
}

template <int kRows>
SPYRE_INLINE void sum_pairs(Sums<kRows>& c, const float* x, int64_t k, const float* panel) {
  for (int64_t i = 0; i + 1 < k; i += 2) {
    step(c, x, k, panel, i + 1);
    step(c, x, k, panel, i);
  }
  if (k % 2 == 0) return;
  add_zero(c);
  step(c, x, k, panel, k - 1);
}

template <int kRows>
SPYRE_INLINE void sum_tiles(Sums<kRows>& c, const float* x, int64_t k, const float* panel) {
  for (int64_t first = 0; first < k; first += kTileK) {
    const int64_t last = std::min<int64_t>(k, first + kTileK);
    Sums<kRows> even, odd;
    for (int64_t i = first; i < last; i += 2) step(even, x, k, panel, i);
    for (int64_t i = first + 1; i < last; i += 2) step(odd, x, k, panel, i);
    if (last < first + kTileK) {
      add_zero(even);
      add_zero(odd);
    }
    for (int r = 0; r < kRows; ++r) c.lanes[r] = c.lanes[r] + (even.lanes[r] + odd.lanes[r]);
  }
}

template <int kRows>
SPYRE_INLINE void block(DotOrder order, const float* x, int64_t k, const float* panel, float* out, int64_t n,
                        int64_t columns) {
  Sums<kRows> c;
  if (order == DotOrder::kSequential) {
    sum_sequential(c, x, k, panel);
  } else if (order == DotOrder::kPair) {
    sum_pairs(c, x, k, panel);
  } else {
    sum_tiles(c, x, k, panel);
  }
  for (int r = 0; r < kRows; ++r) std::memcpy(out + r * n, &c.lanes[r], columns * sizeof(float));
}

// All rows against one panel, two at a time: two sums of 16 lanes are eight of the sixteen SSE registers. (Wider
// registers for newer CPUs were tried and gave nothing.)
void rows_unfused(const DotRows& call, const float* panel, float* out, int64_t columns) {
  int64_t row = 0;
  for (; row + 2 <= call.rows; row += 2) {
    block<2>(call.order, call.x + row * call.k, call.k, panel, out + row * call.n, call.n, columns);
  }
  if (row < call.rows) {
    block<1>(call.order, call.x + row * call.k, call.k, panel, out + row * call.n, call.n, columns);
  }
}

void fill_panel(const DotRows& call, int64_t first, int64_t columns, float* panel) {
  if (columns < kColumns) std::fill_n(panel, call.k * kColumns, 0.0f);
  if (call.n_stride == 1) {
    for (int64_t k = 0; k < call.k; ++k) {
      const float* from = call.w + k * call.k_stride + first;
      if (columns == kColumns) {
        std::memcpy(panel + k * kColumns, from, sizeof(Lanes));  // of constant size: four stores and no call
      } else {
        std::memcpy(panel + k * kColumns, from, columns * sizeof(float));
      }
    }
    return;
  }
  for (int64_t n = 0; n < columns; ++n) {
    const float* from = call.w + (first + n) * call.n_stride;
    for (int64_t k = 0; k < call.k; ++k) panel[k * kColumns + n] = from[k * call.k_stride];
  }
}

// Least and largest finite magnitude that is not flushed to zero.
struct Magnitudes {
  float least = std::numeric_limits<float>::infinity(), largest = 0;
};

// The bits of a positive fp32 order as integers do. Four lanes, the registers of the baseline: wider compares would be
// taken apart into scalars.
constexpr int kIntLanes = 4;
typedef int32_t IntLanes __attribute__((vector_size(kIntLanes * sizeof(int32_t))));
constexpr int32_t kLeastNormal = 0x00800000, kInfinity = 0x7f800000;

SPYRE_INLINE void fold(const float* data, IntLanes& least, IntLanes& largest) {
  IntLanes magnitude;
  std::memcpy(&magnitude, data, sizeof magnitude);
  magnitude &= 0x7fffffff;
  const IntLanes counts = (magnitude >= kLeastNormal) & (magnitude < kInfinity);
  const IntLanes for_least = (magnitude & counts) | (kInfinity & ~counts), for_largest = magnitude & counts;
  least = for_least < least ? for_least : least;
  largest = for_largest > largest ? for_largest : largest;
}

Magnitudes magnitudes(const float* data, int64_t count) {
  IntLanes least = kInfinity - IntLanes{}, largest = {};
  int64_t i = 0;
  for (; i + kIntLanes <= count; i += kIntLanes) fold(data + i, least, largest);
  float rest[kIntLanes] = {};
  std::copy(data + i, data + count, rest);
  fold(rest, least, largest);
  Magnitudes result;
  for (int lane = 0; lane < kIntLanes; ++lane) {
    result.least = std::min(result.least, std::bit_cast<float>(static_cast<int32_t>(least[lane])));
    result.largest = std::max(result.largest, std::bit_cast<float>(static_cast<int32_t>(largest[lane])));
  }
  return result;
}

// A product of two bf16 is exact in fp32 unless it is subnormal or overflows.
bool products_are_exact(const Magnitudes& a, const Magnitudes& b) {
  return static_cast<double>(a.largest) * b.largest <= std::numeric_limits<float>::max() &&
         static_cast<double>(a.least) * b.least >= std::numeric_limits<float>::min();
}

// The definition with a true fma, one element at a time: for panels whose products leave the normal range.
float fused_dot(DotOrder order, const float* x, const float* column, int64_t k) {
  const auto fma_at = [&](int64_t i, float c) {
    return i < k ? fma_of_16bit(x[i], column[i * kColumns], c) : c + 0.0f;
  };
  float c = 0;
  if (order == DotOrder::kSequential) {
    for (int64_t i = 0; i < k; ++i) c = fma_at(i, c);
  } else if (order == DotOrder::kPair) {
    for (int64_t i = 0; i < k; i += 2) c = fma_at(i, fma_at(i + 1, c));
  } else {
    for (int64_t first = 0; first < k; first += kTileK) {
      float even = 0, odd = 0;
      for (int64_t i = first; i < first + kTileK; i += 2) even = fma_at(i, even), odd = fma_at(i + 1, odd);
      c = c + (even + odd);
    }
  }
  return c;
}

void rows_fused(const DotRows& call, const float* panel, float* out, int64_t columns) {
  for (int64_t row = 0; row < call.rows; ++row) {
    for (int64_t n = 0; n < columns; ++n) {
      out[row * call.n + n] = fused_dot(call.order, call.x + row * call.k, panel + n, call.k);
    }
  }
}

}  // namespace

void dot_rows(const DotRows& call) {
  const Magnitudes of_x = call.bf16 ? magnitudes(call.x, call.rows * call.k) : Magnitudes();
  std::vector<float> panel(call.k * kColumns);
  for (int64_t first = 0; first < call.n; first += kColumns) {
    const int64_t columns = std::min<int64_t>(kColumns, call.n - first);
    fill_panel(call, first, columns, panel.data());
    const bool fused = call.bf16 && !products_are_exact(of_x, magnitudes(panel.data(), call.k * kColumns));
    (fused ? rows_fused : rows_unfused)(call, panel.data(), call.out + first, columns);
  }
}

}  // namespace spyre::graph
