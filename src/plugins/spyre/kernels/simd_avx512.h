// Sixteen fp32 lanes on AVX-512: one zmm register. See simd_portable.h for the contract of every function; this file is
// included by *_avx512*.cc only, and everything in it has internal linkage.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)
// gcc 12 reports the deliberately undefined operand inside its own intrinsics.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <immintrin.h>

#include <cstdint>

#define SPYRE_INLINE inline __attribute__((always_inline))

namespace spyre::kernels {
namespace {

constexpr int kAccumulators = 24;  // Vecs of a register tile; the rest of the 32 registers holds operands

struct Vec {
  __m512 v;
};
struct Mask {
  __mmask16 m;
};

SPYRE_INLINE Vec zero() {
  return {_mm512_setzero_ps()};
}
SPYRE_INLINE void settle(Vec& x) {
  __asm__("" : "+v"(x.v));
}
SPYRE_INLINE Vec set1(float x) {
  return {_mm512_set1_ps(x)};
}
SPYRE_INLINE Vec load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
SPYRE_INLINE void store(float* p, Vec x) {
  _mm512_storeu_ps(p, x.v);
}
SPYRE_INLINE __mmask16 lane_mask(int64_t n) {
  return static_cast<__mmask16>((1u << n) - 1u);
}
SPYRE_INLINE Vec load_n(const float* p, int64_t n) {
  return {_mm512_maskz_loadu_ps(lane_mask(n), p)};
}
SPYRE_INLINE void store_n(float* p, Vec x, int64_t n) {
  _mm512_mask_storeu_ps(p, lane_mask(n), x.v);
}

SPYRE_INLINE Vec operator+(Vec a, Vec b) {
  return {_mm512_add_ps(a.v, b.v)};
}
SPYRE_INLINE Vec operator-(Vec a, Vec b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
SPYRE_INLINE Vec operator*(Vec a, Vec b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
SPYRE_INLINE Vec operator/(Vec a, Vec b) {
  return {_mm512_div_ps(a.v, b.v)};
}
SPYRE_INLINE Vec square_root(Vec x) {
  return {_mm512_sqrt_ps(x.v)};
}
SPYRE_INLINE Vec greater_of(Vec a, Vec b) {
  return {_mm512_max_ps(a.v, b.v)};
}
SPYRE_INLINE Vec lesser_of(Vec a, Vec b) {
  return {_mm512_min_ps(a.v, b.v)};
}
SPYRE_INLINE Vec fma_f16(Vec a, Vec b, Vec c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
SPYRE_INLINE Vec fma_bf16(Vec a, Vec b, Vec c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}

SPYRE_INLINE __m512i bits_of(Vec x) {
  return _mm512_castps_si512(x.v);
}
SPYRE_INLINE Vec from_bits(__m512i x) {
  return {_mm512_castsi512_ps(x)};
}
SPYRE_INLINE Vec abs_bits(Vec x) {
  return from_bits(_mm512_and_si512(bits_of(x), _mm512_set1_epi32(0x7fffffff)));
}
SPYRE_INLINE Vec neg_bits(Vec x) {
  return from_bits(_mm512_xor_si512(bits_of(x), _mm512_set1_epi32(static_cast<int>(0x80000000u))));
}
SPYRE_INLINE Vec copy_sign(Vec magnitude, Vec sign) {
  return from_bits(_mm512_ternarylogic_epi32(_mm512_set1_epi32(0x7fffffff), bits_of(magnitude), bits_of(sign), 0xca));
}

SPYRE_INLINE Mask less(Vec a, Vec b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)};
}
SPYRE_INLINE Mask equal(Vec a, Vec b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)};
}
SPYRE_INLINE Mask not_less(Vec a, Vec b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_NLT_UQ)};
}
SPYRE_INLINE Mask is_nan(Vec a) {
  return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)};
}
SPYRE_INLINE Mask lanes_between(int64_t lo, int64_t hi) {
  return {static_cast<__mmask16>(lane_mask(hi) & ~lane_mask(lo))};
}
SPYRE_INLINE Vec select(Mask m, Vec yes, Vec no) {
  return {_mm512_mask_blend_ps(m.m, no.v, yes.v)};
}

SPYRE_INLINE Vec scale_by_power(Vec x, Vec shifted) {
  return from_bits(_mm512_add_epi32(bits_of(x), _mm512_slli_epi32(bits_of(shifted), 23)));
}
SPYRE_INLINE Vec scale_by_power_where(Mask kept, Vec x, Vec shifted) {
  return from_bits(_mm512_maskz_add_epi32(kept.m, bits_of(x), _mm512_slli_epi32(bits_of(shifted), 23)));
}
SPYRE_INLINE void split_exponent(Vec x, Vec& exponent, Vec& mantissa) {
  const __m512i e = _mm512_srai_epi32(_mm512_sub_epi32(bits_of(x), _mm512_set1_epi32(0x3f3504f3)), 23);
  mantissa = from_bits(_mm512_sub_epi32(bits_of(x), _mm512_slli_epi32(e, 23)));
  exponent = {_mm512_cvtepi32_ps(e)};
}

SPYRE_INLINE __m128 halves4(__m512 x, __m256& low, bool maximum) {
  const __m256 a = _mm512_castps512_ps256(x);
  const __m256 b = _mm512_extractf32x8_ps(x, 1);
  low = maximum ? _mm256_max_ps(a, b) : _mm256_add_ps(a, b);
  const __m128 c = _mm256_castps256_ps128(low);
  const __m128 d = _mm256_extractf128_ps(low, 1);
  return maximum ? _mm_max_ps(c, d) : _mm_add_ps(c, d);
}
SPYRE_INLINE float sum_tree(Vec x) {
  __m256 low;
  __m128 s = halves4(x.v, low, false);
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
SPYRE_INLINE float greatest(Vec x) {
  __m256 low;
  __m128 s = halves4(x.v, low, true);
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}

// Eight trees side by side: a shuffle brings halves of two registers together, and each step has half as many. f takes
// the two halves.
template <typename F>
SPYRE_INLINE Vec fold_rows(const float* rows, F f) {
  const auto eights = [&](int r) {  // of rows r and r + 1
    const __m512 a = _mm512_loadu_ps(rows + r * 16), b = _mm512_loadu_ps(rows + r * 16 + 16);
    return f(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  };
  const auto fours = [&](int r) {  // of rows r to r + 3, one in each quarter
    const __m512 a = eights(r), b = eights(r + 2);
    return f(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  };
  const __m512 a = fours(0), b = fours(4);
  const __m512 twos = f(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));  // quarter i: rows i and i + 4
  const __m512 ones = f(_mm512_shuffle_ps(twos, twos, 0x88), _mm512_shuffle_ps(twos, twos, 0xdd));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0);
  return {_mm512_maskz_permutexvar_ps(0x00ff, order, ones)};
}
SPYRE_INLINE Vec sum_trees(const float* rows) {
  return fold_rows(rows, [](__m512 a, __m512 b) { return _mm512_add_ps(a, b); });
}
SPYRE_INLINE Vec greatest_of_each(const float* rows) {
  return fold_rows(rows, [](__m512 a, __m512 b) { return _mm512_max_ps(a, b); });
}

// Thirty-two 16-bit words, as a pair order uses them: [16][2].
struct Pairs {
  __m512i v;
};
SPYRE_INLINE Pairs load_pairs(const uint16_t* p) {
  return {_mm512_loadu_si512(p)};
}
SPYRE_INLINE Vec even_of(Pairs x) {
  return from_bits(_mm512_slli_epi32(x.v, 16));
}
SPYRE_INLINE Vec odd_of(Pairs x) {
  return from_bits(_mm512_and_si512(x.v, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}

struct F16 {
  static constexpr bool kIsBf16 = false;
  static SPYRE_INLINE Vec load(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  static SPYRE_INLINE Vec load_n(const uint16_t* p, int64_t n) {
    return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lane_mask(n), p))};
  }
  static SPYRE_INLINE __m256i pack(Vec x) {
    return _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static SPYRE_INLINE void store(uint16_t* p, Vec x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), pack(x)); }
  static SPYRE_INLINE void store_n(uint16_t* p, Vec x, int64_t n) {
    _mm256_mask_storeu_epi16(p, lane_mask(n), pack(x));
  }
  static SPYRE_INLINE Vec round(Vec x) { return {_mm512_cvtph_ps(pack(x))}; }
};

struct Bf16 {
  static constexpr bool kIsBf16 = true;
  static SPYRE_INLINE Vec widen(__m256i x) { return from_bits(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16)); }
  static SPYRE_INLINE Vec load(const uint16_t* p) {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static SPYRE_INLINE Vec load_n(const uint16_t* p, int64_t n) {
    return widen(_mm256_maskz_loadu_epi16(lane_mask(n), p));
  }
#ifdef __AVX512BF16__
  static SPYRE_INLINE __m256i pack(Vec x) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x.v)); }
  static SPYRE_INLINE Vec round(Vec x) { return widen(pack(x)); }
#else
  // The word in the upper half of each lane: nearest even; subnormals to zero, as vcvtneps2bf16 has it; NaN made quiet.
  static SPYRE_INLINE __m512i round_high(Vec x) {
    const __m512i bits = bits_of(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = is_nan(x).m;
    r = _mm512_mask_or_epi32(r, nan, bits, _mm512_set1_epi32(0x00400000));
    const __mmask16 tiny = _mm512_testn_epi32_mask(bits, _mm512_set1_epi32(0x7f800000));
    return _mm512_mask_and_epi32(r, tiny, bits, _mm512_set1_epi32(static_cast<int>(0x80000000u)));
  }
  static SPYRE_INLINE __m256i pack(Vec x) { return _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_high(x), 16)); }
  static SPYRE_INLINE Vec round(Vec x) {
    return from_bits(_mm512_and_si512(round_high(x), _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
#endif
  static SPYRE_INLINE void store(uint16_t* p, Vec x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), pack(x)); }
  static SPYRE_INLINE void store_n(uint16_t* p, Vec x, int64_t n) {
    _mm256_mask_storeu_epi16(p, lane_mask(n), pack(x));
  }
};

// Whether a word of [p, p + 16) has all exponent bits of `exponent` set: infinity or NaN.
struct WordScan {
  __mmask16 bad = 0;
  SPYRE_INLINE void add(__m256i words, int exponent) {
    const __m256i e = _mm256_set1_epi16(static_cast<int16_t>(exponent));
    bad = static_cast<__mmask16>(bad | _mm256_cmpeq_epi16_mask(_mm256_and_si256(words, e), e));
  }
  SPYRE_INLINE void add(const uint16_t* p, int exponent) {
    add(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), exponent);
  }
  SPYRE_INLINE void add_n(const uint16_t* p, int64_t n, int exponent) {
    add(_mm256_maskz_loadu_epi16(lane_mask(n), p), exponent);
  }
  SPYRE_INLINE bool found() const { return bad != 0; }
};

}  // namespace
}  // namespace spyre::kernels
