// The three GEMM orders over a register tile, for attention-inl.h. Included after a simd_*.h file; internal linkage.
//
// A tile is c[R][NV]: R rows times NV * 16 columns of one 64-column stick. run() adds a[r][u] times the stick's row u
// for u in [first, last), ascending; a *unit* u is what the order takes at a time: one k (sequential) or a pair of k
// (pair, tile).
//
// A row of a has kWordsPerUnit elements a unit. Ranges of units are whole multiples of kGroupUnits. With kAskRows rows
// or more, the arithmetic on a cache line of the stick takes longer than memory takes to bring one.
//
// run_masked() does the 64 keys of P x V for rows that see different keys: row r sees [lo[r], hi[r]), its a is 0
// elsewhere. The definition multiplies masked keys as zeros. Here they are left out wherever no row sees them and where
// a row does not see what another one sees, since V may hold a stranger's NaN there. What a zero product does is to
// turn -0 into +0: a +0 is added in place of the masked keys behind. Those before need nothing: what a row sees is an
// interval, so they stand in the first step that it sees, where the accumulator is still +0.
#pragma once

#include "plugins/spyre/kernels/attention.h"
#include "plugins/spyre/kernels/simd_bundle-inl.h"

namespace spyre::kernels {
namespace {

struct MaskedUnits {
  int first, last;                // units in which some row sees a key
  int common_first, common_last;  // units in which every row sees every key; may be empty
};

template <int R>
SPYRE_INLINE MaskedUnits masked_units(const int* lo, const int* hi, int keys_per_unit) {
  int first_lo = lo[0], last_lo = lo[0], first_hi = hi[0], last_hi = hi[0];
#pragma GCC unroll 8
  for (int r = 1; r < R; ++r) {
    first_lo = lo[r] < first_lo ? lo[r] : first_lo;
    last_lo = lo[r] > last_lo ? lo[r] : last_lo;
    first_hi = hi[r] < first_hi ? hi[r] : first_hi;
    last_hi = hi[r] > last_hi ? hi[r] : last_hi;
  }
  MaskedUnits u;
  u.first = first_lo / keys_per_unit;
  u.last = (last_hi + keys_per_unit - 1) / keys_per_unit;
  u.common_first = (last_lo + keys_per_unit - 1) / keys_per_unit;
  u.common_last = first_hi / keys_per_unit;
  if (u.common_first >= u.common_last) u.common_first = u.common_last = u.last;
  return u;
}

template <int R, int NV>
SPYRE_INLINE void add_zero(Vec (&c)[R][NV], int r) {
#pragma GCC unroll 4
  for (int v = 0; v < NV; ++v) c[r][v] = c[r][v] + zero();
}

// c[r][v] = fma(a[r * lda], w(v), c[r][v]): one k of a tile. With registers to spare every w stays while a row's number
// is broadcast once; otherwise one w at a time.
template <typename Element, int R, int NV, typename W>
SPYRE_INLINE void multiply_add(const float* a, int64_t lda, W w, Vec (&c)[R][NV]) {
  const auto fma = [](Vec x, Vec y, Vec z) { return Element::kIsBf16 ? fma_bf16(x, y, z) : fma_f16(x, y, z); };
  if constexpr (kAccumulators >= 24) {
    Vec kept[NV];
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) kept[v] = w(v);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vec s = set1(a[r * lda]);
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) c[r][v] = fma(s, kept[v], c[r][v]);
    }
  } else {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      const Vec one = w(v);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) c[r][v] = fma(set1(a[r * lda]), one, c[r][v]);
    }
  }
}

// Units before the common ones, the common ones, and those behind: the shape of run_masked for the orders without
// groups.
template <typename Dot, int R, int NV>
SPYRE_INLINE void run_masked_units(const typename Dot::A* a, int64_t lda, const uint16_t* b, const int* lo,
                                   const int* hi, Vec (&c)[R][NV]) {
  const MaskedUnits units = masked_units<R>(lo, hi, Dot::kKeysPerUnit);
  for (int u = units.first; u < units.common_first; ++u) Dot::masked_unit(a, lda, b, u, lo, hi, c);
  Dot::run(a, lda, b, units.common_first, units.common_last, c);
  for (int u = units.common_last; u < units.last; ++u) Dot::masked_unit(a, lda, b, u, lo, hi, c);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    if (hi[r] < kGroupTokens) add_zero(c, r);
  }
}

// N vectors of weights, rounded, as fp32 at `out`.
template <typename T, int N>
SPYRE_INLINE Bundle<N> put_wide(float* out, const Bundle<N>& p) {
  return bundle<N>([&](int i) {
    const Vec rounded = T::round(p.v[i]);
    store(out + i * 16, rounded);
    return rounded;
  });
}

// f16: one k at a time.
struct SequentialDot {
  using Element = F16;
  using A = float;
  static constexpr int kKeysPerUnit = 1;
  static constexpr int kWordsPerUnit = 1;
  static constexpr int kElementsPerWord = 1;
  static constexpr int kGroupUnits = 1;
  static constexpr int kAskRows = 4;
  static constexpr int kAccumulatorVecs = kAccumulators;
  static SPYRE_INLINE int64_t units(int64_t d) { return d; }
  static SPYRE_INLINE void pack(const uint16_t* q, int64_t d, A* out) {
    for (int64_t i = 0; i < d; i += 16) store(out + i, d - i >= 16 ? F16::load(q + i) : F16::load_n(q + i, d - i));
  }
  template <int N>
  static SPYRE_INLINE Bundle<N> put(A* out, const Bundle<N>& p) {
    return put_wide<F16>(out, p);
  }
  template <int R, int NV>
  static SPYRE_INLINE void run(const A* a, int64_t lda, const uint16_t* b, int64_t first, int64_t last,
                               Vec (&c)[R][NV]) {
    for (int64_t u = first; u < last; ++u) {
      multiply_add<F16>(a + u, lda, [&](int v) { return F16::load(b + u * 64 + v * 16); }, c);
    }
  }
  template <int R, int NV>
  static SPYRE_INLINE void masked_unit(const A* a, int64_t lda, const uint16_t* b, int u, const int* lo, const int* hi,
                                       Vec (&c)[R][NV]) {
    Vec w[NV];
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) w[v] = F16::load(b + u * 64 + v * 16);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      if (u < lo[r] || u >= hi[r]) continue;
      const Vec s = set1(a[r * lda + u]);
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) c[r][v] = fma_f16(s, w[v], c[r][v]);
    }
  }
  template <int R, int NV>
  static SPYRE_INLINE void run_masked(const A* a, int64_t lda, const uint16_t* b, const int* lo, const int* hi,
                                      Vec (&c)[R][NV]) {
    run_masked_units<SequentialDot>(a, lda, b, lo, hi, c);
  }
};

// What the two bf16 orders by fp32 FMA share: a is widened, its pairs side by side.
struct WidePairs {
  using Element = Bf16;
  using A = float;
  static constexpr int kKeysPerUnit = 2;
  static constexpr int kWordsPerUnit = 2;
  static constexpr int kElementsPerWord = 1;
  static constexpr int kAskRows = 4;
  static SPYRE_INLINE void pack_padded(const uint16_t* q, int64_t d, int64_t padded, A* out) {
    for (int64_t i = 0; i < padded; i += 16) {
      const int64_t count = d - i >= 16 ? 16 : d > i ? d - i : 0;
      store(out + i, count == 16 ? Bf16::load(q + i) : Bf16::load_n(q + i, count));
    }
  }
  template <int N>
  static SPYRE_INLINE Bundle<N> put(A* out, const Bundle<N>& p) {
    return put_wide<Bf16>(out, p);
  }
  // c += a[.][k] times the even or odd elements of unit u. Loading the stick twice leaves registers for the tile.
  template <bool kOdd, int R, int NV>
  static SPYRE_INLINE void half(const A* a, int64_t lda, const uint16_t* b, int64_t u, Vec (&c)[R][NV]) {
    const auto w = [&](int v) {
      const Pairs pairs = load_pairs(b + u * 128 + v * 32);
      return kOdd ? odd_of(pairs) : even_of(pairs);
    };
    multiply_add<Bf16>(a + 2 * u + (kOdd ? 1 : 0), lda, w, c);
  }
  template <bool kOdd, int R, int NV>
  static SPYRE_INLINE void masked_half(const A* a, int64_t lda, const uint16_t* b, int u, const int* lo, const int* hi,
                                       Vec (&c)[R][NV]) {
    const int key = 2 * u + (kOdd ? 1 : 0);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      if (key < lo[r] || key >= hi[r]) {
        add_zero(c, r);
        continue;
      }
      const Vec s = set1(a[r * lda + key]);
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) {
        const Pairs pairs = load_pairs(b + u * 128 + v * 32);
        c[r][v] = fma_bf16(s, kOdd ? odd_of(pairs) : even_of(pairs), c[r][v]);
      }
    }
  }
};

struct PairDot : WidePairs {
  static constexpr int kGroupUnits = 1;
  static constexpr int kAccumulatorVecs = kAccumulators;
  static SPYRE_INLINE int64_t units(int64_t d) { return (d + 1) / 2; }
  static SPYRE_INLINE void pack(const uint16_t* q, int64_t d, A* out) { pack_padded(q, d, d, out); }
  template <int R, int NV>
  static SPYRE_INLINE void run(const A* a, int64_t lda, const uint16_t* b, int64_t first, int64_t last,
                               Vec (&c)[R][NV]) {
    for (int64_t u = first; u < last; ++u) {
      half<true>(a, lda, b, u, c);
      half<false>(a, lda, b, u, c);
    }
  }
  template <int R, int NV>
  static SPYRE_INLINE void masked_unit(const A* a, int64_t lda, const uint16_t* b, int u, const int* lo, const int* hi,
                                       Vec (&c)[R][NV]) {
    masked_half<true>(a, lda, b, u, lo, hi, c);
    masked_half<false>(a, lda, b, u, lo, hi, c);
  }
  template <int R, int NV>
  static SPYRE_INLINE void run_masked(const A* a, int64_t lda, const uint16_t* b, const int* lo, const int* hi,
                                      Vec (&c)[R][NV]) {
    run_masked_units<PairDot>(a, lda, b, lo, hi, c);
  }
};

struct TileDot : WidePairs {
  static constexpr int kAccumulatorVecs = kAccumulators / 2;  // e and o
  static constexpr int kGroupUnits = 16;
  static SPYRE_INLINE int64_t units(int64_t d) { return (d + 31) / 32 * kGroupUnits; }
  static SPYRE_INLINE void pack(const uint16_t* q, int64_t d, A* out) { pack_padded(q, d, (d + 31) / 32 * 32, out); }

  template <int R, int NV>
  static SPYRE_INLINE void add_group(const Vec (&e)[R][NV], const Vec (&o)[R][NV], Vec (&c)[R][NV]) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) c[r][v] = c[r][v] + (e[r][v] + o[r][v]);
    }
  }
  template <int R, int NV>
  static SPYRE_INLINE void run_pairs(const A* a, int64_t lda, const uint16_t* b, int64_t first, int64_t last,
                                     Vec (&e)[R][NV], Vec (&o)[R][NV]) {
    for (int64_t u = first; u < last; ++u) {
      half<false>(a, lda, b, u, e);
      half<true>(a, lda, b, u, o);
    }
  }
  // REQUIRES: first and last are multiples of 16.
  template <int R, int NV>
  static SPYRE_INLINE void run(const A* a, int64_t lda, const uint16_t* b, int64_t first, int64_t last,
                               Vec (&c)[R][NV]) {
    for (int64_t u = first; u < last; u += kGroupUnits) {
      Vec e[R][NV] = {}, o[R][NV] = {};
      run_pairs(a, lda, b, u, u + kGroupUnits, e, o);
      add_group(e, o, c);
    }
  }
  template <int R, int NV>
  static SPYRE_INLINE void masked_pairs(const A* a, int64_t lda, const uint16_t* b, int first, int last, const int* lo,
                                        const int* hi, Vec (&e)[R][NV], Vec (&o)[R][NV]) {
    for (int u = first; u < last; ++u) {
      masked_half<false>(a, lda, b, u, lo, hi, e);
      masked_half<true>(a, lda, b, u, lo, hi, o);
    }
  }
  template <int R, int NV>
  static SPYRE_INLINE void run_masked(const A* a, int64_t lda, const uint16_t* b, const int* lo, const int* hi,
                                      Vec (&c)[R][NV]) {
    const MaskedUnits units = masked_units<R>(lo, hi, kKeysPerUnit);
    for (int g = 0; g < kGroupTokens / kKeysPerUnit; g += kGroupUnits) {
      const auto inside = [g](int u) { return u < g ? g : u > g + kGroupUnits ? g + kGroupUnits : u; };
      Vec e[R][NV] = {}, o[R][NV] = {};  // +0 as they are, so masked pairs in front need nothing
      masked_pairs(a, lda, b, inside(units.first), inside(units.common_first), lo, hi, e, o);
      run_pairs(a, lda, b, inside(units.common_first), inside(units.common_last), e, o);
      masked_pairs(a, lda, b, inside(units.common_last), inside(units.last), lo, hi, e, o);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        if (hi[r] < 2 * (g + kGroupUnits)) {
          add_zero(e, r);
          add_zero(o, r);
        }
      }
      add_group(e, o, c);
    }
  }
};

}  // namespace
}  // namespace spyre::kernels
