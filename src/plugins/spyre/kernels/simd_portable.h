// Sixteen fp32 lanes for any machine: four 16-byte compiler vectors, which are one register each on SSE, VSX, z/Vector
// and NEON. Sixteen, so that the lanes of `tree16` (docs/numerics.md §3) are the lanes of a Vec.
//
// This file is the contract of the tiny vector class; simd_avx2.h and simd_avx512.h offer the same names with the same
// bits. A kernel is written once over these names (rows-inl.h, attention-inl.h) and compiled once per instruction set.
//
// ODR: everything here has internal linkage and is always inlined. An inline function with external linkage, compiled
// with AVX-512 flags in one file, could be the copy that the linker keeps for the whole program.
#pragma once

#include <cstdint>
#include <cstring>

#define SPYRE_INLINE inline __attribute__((always_inline))

namespace spyre::kernels {
namespace {

typedef float F4 __attribute__((vector_size(16)));
typedef int32_t I4 __attribute__((vector_size(16)));
typedef uint32_t U4 __attribute__((vector_size(16)));

// Vecs of a register tile that leave room for operands in the registers.
constexpr int kAccumulators = 3;

struct Vec {
  F4 v[4];
};
struct Mask {
  I4 m[4];  // all bits of a lane, or none
};

template <typename F>
SPYRE_INLINE Vec each(F f) {
  return {{f(0), f(1), f(2), f(3)}};
}
template <typename F>
SPYRE_INLINE Mask each_mask(F f) {
  return {{f(0), f(1), f(2), f(3)}};
}
SPYRE_INLINE F4 splat(float x) {
  return F4{x, x, x, x};
}
SPYRE_INLINE U4 splat_bits(uint32_t x) {
  return U4{x, x, x, x};
}
SPYRE_INLINE F4 choose(I4 mask, F4 yes, F4 no) {
  return (F4)(((I4)yes & mask) | ((I4)no & ~mask));
}
SPYRE_INLINE U4 choose_bits(I4 mask, U4 yes, U4 no) {
  return (yes & (U4)mask) | (no & ~(U4)mask);
}

SPYRE_INLINE Vec zero() {
  return {};
}
SPYRE_INLINE Vec set1(float x) {
  return each([&](int) { return splat(x); });
}
// Makes x stand in registers here: a compiler that may move the steps of several Vecs puts each one's behind each
// other, undoing what Bundles are for. Where one Vec fills enough registers there is nothing to do.
SPYRE_INLINE void settle(Vec&) {}
// Any alignment. The _n forms touch n lanes only, 0 <= n <= 16; the others load as +0.
SPYRE_INLINE Vec load(const float* p) {
  Vec x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
SPYRE_INLINE void store(float* p, Vec x) {
  std::memcpy(p, &x, sizeof x);
}
SPYRE_INLINE Vec load_n(const float* p, int64_t n) {
  Vec x = {};
  std::memcpy(&x, p, static_cast<size_t>(n) * sizeof(float));
  return x;
}
SPYRE_INLINE void store_n(float* p, Vec x, int64_t n) {
  std::memcpy(p, &x, static_cast<size_t>(n) * sizeof(float));
}

SPYRE_INLINE Vec operator+(Vec a, Vec b) {
  return each([&](int i) { return a.v[i] + b.v[i]; });
}
SPYRE_INLINE Vec operator-(Vec a, Vec b) {
  return each([&](int i) { return a.v[i] - b.v[i]; });
}
SPYRE_INLINE Vec operator*(Vec a, Vec b) {
  return each([&](int i) { return a.v[i] * b.v[i]; });
}
SPYRE_INLINE Vec operator/(Vec a, Vec b) {
  return each([&](int i) { return a.v[i] / b.v[i]; });
}
SPYRE_INLINE Vec square_root(Vec x) {
  return each([&](int i) {
    F4 r;
    for (int j = 0; j < 4; ++j) r[j] = __builtin_sqrtf(x.v[i][j]);
    return r;
  });
}
// a > b ? a : b, and a < b ? a : b: what maxps and minps do; b when either is NaN.
SPYRE_INLINE Vec greater_of(Vec a, Vec b) {
  return each([&](int i) { return choose(a.v[i] > b.v[i], a.v[i], b.v[i]); });
}
SPYRE_INLINE Vec lesser_of(Vec a, Vec b) {
  return each([&](int i) { return choose(a.v[i] < b.v[i], a.v[i], b.v[i]); });
}
// fma(a, b, c) for a and b that are f16 values: their product is exact and normal (or zero).
SPYRE_INLINE Vec fma_f16(Vec a, Vec b, Vec c) {
  return each([&](int i) { return c.v[i] + a.v[i] * b.v[i]; });
}
// fma(a, b, c) for a and b that are bf16 values: their product may leave the range of fp32. In double it is exact, and
// so is the sum, but for a part too small to move the rounding to fp32.
SPYRE_INLINE Vec fma_bf16(Vec a, Vec b, Vec c) {
  return each([&](int i) {
    F4 r;
    for (int j = 0; j < 4; ++j) {
#ifdef __FP_FAST_FMAF
      r[j] = __builtin_fmaf(a.v[i][j], b.v[i][j], c.v[i][j]);
#else
      r[j] = static_cast<float>(static_cast<double>(a.v[i][j]) * static_cast<double>(b.v[i][j]) +
                                static_cast<double>(c.v[i][j]));
#endif
    }
    return r;
  });
}

// The sign bit alone: no arithmetic, so a subnormal stays what it is.
SPYRE_INLINE Vec abs_bits(Vec x) {
  return each([&](int i) { return (F4)((U4)x.v[i] & splat_bits(0x7fffffffu)); });
}
SPYRE_INLINE Vec neg_bits(Vec x) {
  return each([&](int i) { return (F4)((U4)x.v[i] ^ splat_bits(0x80000000u)); });
}
SPYRE_INLINE Vec copy_sign(Vec magnitude, Vec sign) {
  return each([&](int i) {
    return (F4)(((U4)magnitude.v[i] & splat_bits(0x7fffffffu)) | ((U4)sign.v[i] & splat_bits(0x80000000u)));
  });
}

// Comparisons are false for NaN.
SPYRE_INLINE Mask less(Vec a, Vec b) {
  return each_mask([&](int i) { return (I4)(a.v[i] < b.v[i]); });
}
SPYRE_INLINE Mask equal(Vec a, Vec b) {
  return each_mask([&](int i) { return (I4)(a.v[i] == b.v[i]); });
}
SPYRE_INLINE Mask not_less(Vec a, Vec b) {  // also where one is NaN
  return each_mask([&](int i) { return ~(I4)(a.v[i] < b.v[i]); });
}
SPYRE_INLINE Mask is_nan(Vec a) {
  return each_mask([&](int i) { return (I4)(a.v[i] != a.v[i]); });
}
// Lanes lo <= i < hi; 0 <= lo, hi <= 16.
SPYRE_INLINE Mask lanes_between(int64_t lo, int64_t hi) {
  const int32_t l = static_cast<int32_t>(lo), h = static_cast<int32_t>(hi);
  return each_mask([&](int i) {
    const I4 lane = I4{0, 1, 2, 3} + 4 * i;
    return (I4)((lane >= I4{l, l, l, l}) & (lane < I4{h, h, h, h}));
  });
}
SPYRE_INLINE Vec select(Mask m, Vec yes, Vec no) {
  return each([&](int i) { return choose(m.m[i], yes.v[i], no.v[i]); });
}

// x * 2^n where `shifted` is n + 1.5 * 2^23; x and the result are normal numbers.
SPYRE_INLINE Vec scale_by_power(Vec x, Vec shifted) {
  return each([&](int i) { return (F4)((U4)x.v[i] + ((U4)shifted.v[i] << 23)); });
}
// The same, and +0 in lanes that are not kept.
SPYRE_INLINE Vec scale_by_power_where(Mask kept, Vec x, Vec shifted) {
  return each([&](int i) { return (F4)(((I4)x.v[i] + ((I4)shifted.v[i] << 23)) & kept.m[i]); });
}
// A positive normal x as mantissa * 2^exponent, the mantissa in [sqrt(1/2), sqrt(2)).
SPYRE_INLINE void split_exponent(Vec x, Vec& exponent, Vec& mantissa) {
  for (int i = 0; i < 4; ++i) {
    const I4 e = (I4)((U4)x.v[i] - splat_bits(0x3f3504f3u)) >> 23;
    mantissa.v[i] = (F4)((U4)x.v[i] - ((U4)e << 23));
    exponent.v[i] =
        F4{static_cast<float>(e[0]), static_cast<float>(e[1]), static_cast<float>(e[2]), static_cast<float>(e[3])};
  }
}

// The tree of tree16: lane i += lane i + 8, then 4, 2, 1. `greatest` is the same tree of greater_of.
SPYRE_INLINE float sum_tree(Vec x) {
  const F4 a = (x.v[0] + x.v[2]) + (x.v[1] + x.v[3]);
  return (a[0] + a[2]) + (a[1] + a[3]);
}
SPYRE_INLINE float greatest(Vec x) {
  const auto greater = [](float a, float b) { return a > b ? a : b; };
  const F4 b = choose(x.v[0] > x.v[2], x.v[0], x.v[2]), c = choose(x.v[1] > x.v[3], x.v[1], x.v[3]);
  const F4 a = choose(b > c, b, c);
  return greater(greater(a[0], a[2]), greater(a[1], a[3]));
}

// The same of eight rows of sixteen floats, one after the other in memory: lane r is row r's, the other lanes are 0.
SPYRE_INLINE Vec sum_trees(const float* rows) {
  Vec r = {};
  for (int i = 0; i < 8; ++i) r.v[i / 4][i % 4] = sum_tree(load(rows + i * 16));
  return r;
}
SPYRE_INLINE Vec greatest_of_each(const float* rows) {
  Vec r = {};
  for (int i = 0; i < 8; ++i) r.v[i / 4][i % 4] = greatest(load(rows + i * 16));
  return r;
}

// Thirty-two words as a pair order keeps them, [16][2]: their even and odd elements as fp32.
struct Pairs {
  U4 v[4];
};
SPYRE_INLINE Pairs load_pairs(const uint16_t* p) {
  Pairs x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
SPYRE_INLINE U4 first_word(U4 x) {
  return x << 16;
}
SPYRE_INLINE U4 second_word(U4 x) {
  return x & splat_bits(0xffff0000u);
}
#else
SPYRE_INLINE U4 first_word(U4 x) {
  return x & splat_bits(0xffff0000u);
}
SPYRE_INLINE U4 second_word(U4 x) {
  return x << 16;
}
#endif
SPYRE_INLINE Vec even_of(Pairs x) {
  return each([&](int i) { return (F4)first_word(x.v[i]); });
}
SPYRE_INLINE Vec odd_of(Pairs x) {
  return each([&](int i) { return (F4)second_word(x.v[i]); });
}

// A 16-bit type, with rows of 16 words at any alignment. round(x) is x stored and read back.
template <typename Derived>
struct Word16 {
  static SPYRE_INLINE Vec load_n(const uint16_t* p, int64_t n) {
    uint16_t t[16] = {};
    std::memcpy(t, p, static_cast<size_t>(n) * 2);
    return Derived::load(t);
  }
  static SPYRE_INLINE Vec load(const uint16_t* p) {
    return each([&](int i) {
      const uint16_t* q = p + 4 * i;
      return Derived::widen(U4{q[0], q[1], q[2], q[3]});
    });
  }
  static SPYRE_INLINE void store_n(uint16_t* p, Vec x, int64_t n) {
    uint16_t t[16];
    store(t, x);
    std::memcpy(p, t, static_cast<size_t>(n) * 2);
  }
  static SPYRE_INLINE void store(uint16_t* p, Vec x) {
    for (int i = 0; i < 4; ++i) {
      const U4 words = Derived::narrow(x.v[i]);
      for (int j = 0; j < 4; ++j) p[4 * i + j] = static_cast<uint16_t>(words[j]);
    }
  }
  static SPYRE_INLINE Vec round(Vec x) {
    return each([&](int i) { return Derived::widen(Derived::narrow(x.v[i])); });
  }
};

struct F16 : Word16<F16> {
  static constexpr bool kIsBf16 = false;
  static SPYRE_INLINE F4 widen(U4 h) {
    const U4 sign = (h & 0x8000u) << 16;
    const U4 shifted = (h & 0x7fffu) << 13;
    const U4 exponent = shifted & splat_bits(0x0f800000u);
    const U4 normal = shifted + splat_bits(0x38000000u);
    // A subnormal: its mantissa behind the exponent of 2^-14, minus 2^-14, is exact.
    const U4 small = (U4)((F4)(shifted + splat_bits(0x38800000u)) - (F4)splat_bits(0x38800000u));
    const U4 nan = splat_bits(0x7f800000u) | shifted |
                   ((U4)((shifted & splat_bits(0x007fe000u)) != splat_bits(0)) & splat_bits(0x00400000u));
    U4 r = choose_bits((I4)(exponent == splat_bits(0)), small, normal);
    r = choose_bits((I4)(exponent == splat_bits(0x0f800000u)), nan, r);
    return (F4)(r | sign);
  }
  static SPYRE_INLINE U4 narrow(F4 f) {
    const U4 x = (U4)f;
    const U4 sign = (x >> 16) & 0x8000u;
    const U4 magnitude = x & splat_bits(0x7fffffffu);
    const I4 m = (I4)magnitude;
    const U4 rounded = (magnitude + splat_bits(0xfffu) + ((magnitude >> 13) & 1u) - splat_bits(0x38000000u)) >> 13;
    // 0.5 + x has the unit of the last place of a subnormal half, 2^-24: the addition rounds.
    const U4 small = (U4)((F4)magnitude + splat(0.5f)) - splat_bits(0x3f000000u);
    const U4 nan = ((magnitude >> 13) & 0x3ffu) | 0x7e00u;
    U4 r = choose_bits((I4)(m < (I4)splat_bits(0x38800000u)), small, rounded);
    r = choose_bits((I4)(m >= (I4)splat_bits(0x477ff000u)), splat_bits(0x7c00u), r);
    r = choose_bits((I4)(m > (I4)splat_bits(0x7f800000u)), nan, r);
    return r | sign;
  }
};

struct Bf16 : Word16<Bf16> {
  static constexpr bool kIsBf16 = true;
  static SPYRE_INLINE F4 widen(U4 h) { return (F4)(h << 16); }
  static SPYRE_INLINE U4 narrow(F4 f) {
    const U4 x = (U4)f;
    const I4 m = (I4)(x & splat_bits(0x7fffffffu));
    U4 r = x + splat_bits(0x7fffu) + ((x >> 16) & 1u);
    r = choose_bits((I4)(m > (I4)splat_bits(0x7f800000u)), x | splat_bits(0x00400000u), r);
    r = choose_bits((I4)(m < (I4)splat_bits(0x00800000u)), x & splat_bits(0x80000000u), r);
    return r >> 16;
  }
};

// Gathers whether a word with all the bits of `exponent` set (an infinity or a NaN) has been seen.
struct WordScan {
  uint32_t bad = 0;
  SPYRE_INLINE void add_n(const uint16_t* p, int64_t n, int exponent) {
    const uint32_t e = static_cast<uint32_t>(exponent);
    for (int64_t i = 0; i < n; ++i) bad |= static_cast<uint32_t>((p[i] & e) == e);
  }
  SPYRE_INLINE void add(const uint16_t* p, int exponent) { add_n(p, 16, exponent); }
  SPYRE_INLINE bool found() const { return bad != 0; }
};

}  // namespace
}  // namespace spyre::kernels
