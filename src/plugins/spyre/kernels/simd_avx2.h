// Sixteen fp32 lanes on AVX2 + FMA + F16C: two ymm registers. See simd_portable.h for the contract of every function;
// this file is included by *_avx2.cc only, and everything in it has internal linkage.
#pragma once

#include <immintrin.h>

#include <cstdint>

#define SPYRE_INLINE inline __attribute__((always_inline))

namespace spyre::kernels {
namespace {

constexpr int kAccumulators = 6;  // Vecs of a register tile: 12 of the 16 registers

struct Vec {
  __m256 a, b;
};
struct Mask {
  __m256 a, b;
};
struct Bits {
  __m256i a, b;
};

SPYRE_INLINE Vec zero() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
SPYRE_INLINE void settle(Vec& x) {
  __asm__("" : "+x"(x.a), "+x"(x.b));
}
SPYRE_INLINE Vec set1(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
SPYRE_INLINE Vec load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
SPYRE_INLINE void store(float* p, Vec x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
SPYRE_INLINE Vec load_n(const float* p, int64_t n) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), count = _mm256_set1_epi32(static_cast<int>(n));
  return {_mm256_maskload_ps(p, _mm256_cmpgt_epi32(count, lanes)),
          _mm256_maskload_ps(p + 8, _mm256_cmpgt_epi32(count, _mm256_add_epi32(lanes, _mm256_set1_epi32(8))))};
}
SPYRE_INLINE void store_n(float* p, Vec x, int64_t n) {
  alignas(32) float t[16];
  store(t, x);
  for (int64_t i = 0; i < n; ++i) p[i] = t[i];
}

SPYRE_INLINE Vec operator+(Vec x, Vec y) {
  return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
SPYRE_INLINE Vec operator-(Vec x, Vec y) {
  return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
SPYRE_INLINE Vec operator*(Vec x, Vec y) {
  return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
SPYRE_INLINE Vec operator/(Vec x, Vec y) {
  return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
SPYRE_INLINE Vec square_root(Vec x) {
  return {_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)};
}
SPYRE_INLINE Vec greater_of(Vec x, Vec y) {
  return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
SPYRE_INLINE Vec lesser_of(Vec x, Vec y) {
  return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
SPYRE_INLINE Vec fma_f16(Vec x, Vec y, Vec z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
SPYRE_INLINE Vec fma_bf16(Vec x, Vec y, Vec z) {
  return fma_f16(x, y, z);
}

SPYRE_INLINE Bits bits_of(Vec x) {
  return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)};
}
SPYRE_INLINE Vec from_bits(Bits x) {
  return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)};
}
SPYRE_INLINE Vec and_bits(Vec x, uint32_t mask) {
  const __m256 m = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(mask)));
  return {_mm256_and_ps(x.a, m), _mm256_and_ps(x.b, m)};
}
SPYRE_INLINE Vec abs_bits(Vec x) {
  return and_bits(x, 0x7fffffffu);
}
SPYRE_INLINE Vec neg_bits(Vec x) {
  const __m256 m = _mm256_set1_ps(-0.0f);
  return {_mm256_xor_ps(x.a, m), _mm256_xor_ps(x.b, m)};
}
SPYRE_INLINE Vec copy_sign(Vec magnitude, Vec sign) {
  const Vec m = abs_bits(magnitude), s = and_bits(sign, 0x80000000u);
  return {_mm256_or_ps(m.a, s.a), _mm256_or_ps(m.b, s.b)};
}

SPYRE_INLINE Mask less(Vec x, Vec y) {
  return {_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)};
}
SPYRE_INLINE Mask equal(Vec x, Vec y) {
  return {_mm256_cmp_ps(x.a, y.a, _CMP_EQ_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_EQ_OQ)};
}
SPYRE_INLINE Mask not_less(Vec x, Vec y) {
  return {_mm256_cmp_ps(x.a, y.a, _CMP_NLT_UQ), _mm256_cmp_ps(x.b, y.b, _CMP_NLT_UQ)};
}
SPYRE_INLINE Mask is_nan(Vec x) {
  return {_mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q), _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q)};
}
SPYRE_INLINE Mask lanes_between(int64_t lo, int64_t hi) {
  const __m256i a = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i b = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);
  const __m256i low = _mm256_set1_epi32(static_cast<int>(lo) - 1), high = _mm256_set1_epi32(static_cast<int>(hi));
  const auto inside = [&](__m256i lane) {
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_cmpgt_epi32(lane, low), _mm256_cmpgt_epi32(high, lane)));
  };
  return {inside(a), inside(b)};
}
SPYRE_INLINE Vec select(Mask m, Vec yes, Vec no) {
  return {_mm256_blendv_ps(no.a, yes.a, m.a), _mm256_blendv_ps(no.b, yes.b, m.b)};
}

SPYRE_INLINE Vec scale_by_power(Vec x, Vec shifted) {
  const Bits p = bits_of(x), n = bits_of(shifted);
  return from_bits(
      {_mm256_add_epi32(p.a, _mm256_slli_epi32(n.a, 23)), _mm256_add_epi32(p.b, _mm256_slli_epi32(n.b, 23))});
}
SPYRE_INLINE Vec scale_by_power_where(Mask kept, Vec x, Vec shifted) {
  const Vec y = scale_by_power(x, shifted);
  return {_mm256_and_ps(y.a, kept.a), _mm256_and_ps(y.b, kept.b)};
}
SPYRE_INLINE void split_exponent(Vec x, Vec& exponent, Vec& mantissa) {
  const auto exponent_of = [](__m256i bits) {
    return _mm256_srai_epi32(_mm256_sub_epi32(bits, _mm256_set1_epi32(0x3f3504f3)), 23);
  };
  const Bits bits = bits_of(x);
  const __m256i a = exponent_of(bits.a), b = exponent_of(bits.b);
  mantissa = from_bits(
      {_mm256_sub_epi32(bits.a, _mm256_slli_epi32(a, 23)), _mm256_sub_epi32(bits.b, _mm256_slli_epi32(b, 23))});
  exponent = {_mm256_cvtepi32_ps(a), _mm256_cvtepi32_ps(b)};
}

SPYRE_INLINE float sum_tree(Vec x) {
  const __m256 eight = _mm256_add_ps(x.a, x.b);
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
SPYRE_INLINE float greatest(Vec x) {
  const __m256 eight = _mm256_max_ps(x.a, x.b);
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}

// Eight trees side by side: a shuffle brings halves of two registers together, and each step has half as many. f takes
// the two halves.
template <typename F>
SPYRE_INLINE Vec fold_rows(const float* rows, F f) {
  const auto eights = [&](int r) { return f(_mm256_loadu_ps(rows + r * 16), _mm256_loadu_ps(rows + r * 16 + 8)); };
  const auto fours = [&](int r) {  // of rows r and r + 4, one in each half
    const __m256 a = eights(r), b = eights(r + 4);
    return f(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  };
  const auto twos = [&](int r) {  // of rows r and r + 1; r + 4 and r + 5
    const __m256 a = fours(r), b = fours(r + 1);
    return f(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
  };
  const __m256 a = twos(0), b = twos(2);
  return {f(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd)), _mm256_setzero_ps()};
}
SPYRE_INLINE Vec sum_trees(const float* rows) {
  return fold_rows(rows, [](__m256 a, __m256 b) { return _mm256_add_ps(a, b); });
}
SPYRE_INLINE Vec greatest_of_each(const float* rows) {
  return fold_rows(rows, [](__m256 a, __m256 b) { return _mm256_max_ps(a, b); });
}

using Pairs = Bits;
SPYRE_INLINE Pairs load_pairs(const uint16_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16))};
}
SPYRE_INLINE Vec even_of(Pairs x) {
  return from_bits({_mm256_slli_epi32(x.a, 16), _mm256_slli_epi32(x.b, 16)});
}
SPYRE_INLINE Vec odd_of(Pairs x) {
  return and_bits(from_bits(x), 0xffff0000u);
}

SPYRE_INLINE __m256i words_n(const uint16_t* p, int64_t n) {
  alignas(32) uint16_t t[16] = {};
  for (int64_t i = 0; i < n; ++i) t[i] = p[i];
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(t));
}
SPYRE_INLINE void store_words_n(uint16_t* p, __m256i words, int64_t n) {
  alignas(32) uint16_t t[16];
  _mm256_store_si256(reinterpret_cast<__m256i*>(t), words);
  for (int64_t i = 0; i < n; ++i) p[i] = t[i];
}

struct F16 {
  static constexpr bool kIsBf16 = false;
  static SPYRE_INLINE Vec widen(__m256i x) {
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(x)), _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1))};
  }
  static SPYRE_INLINE Vec load(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
  }
  static SPYRE_INLINE Vec load_n(const uint16_t* p, int64_t n) { return widen(words_n(p, n)); }
  static SPYRE_INLINE __m256i pack(Vec x) {
    return _mm256_set_m128i(_mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                            _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static SPYRE_INLINE void store(uint16_t* p, Vec x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), pack(x)); }
  static SPYRE_INLINE void store_n(uint16_t* p, Vec x, int64_t n) { store_words_n(p, pack(x), n); }
  static SPYRE_INLINE Vec round(Vec x) { return widen(pack(x)); }
};

struct Bf16 {
  static constexpr bool kIsBf16 = true;
  static SPYRE_INLINE Vec widen(__m256i x) {
    return from_bits({_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(x)), 16),
                      _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1)), 16)});
  }
  static SPYRE_INLINE Vec load(const uint16_t* p) {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static SPYRE_INLINE Vec load_n(const uint16_t* p, int64_t n) { return widen(words_n(p, n)); }
  // The word in the upper half of each lane: nearest even; subnormals to zero, as vcvtneps2bf16 has it; NaN made quiet.
  static SPYRE_INLINE __m256i round_high(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i exponent = _mm256_set1_epi32(0x7f800000);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i r = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i tiny = _mm256_cmpeq_epi32(_mm256_and_si256(bits, exponent), _mm256_setzero_si256());
    const __m256i sign = _mm256_and_si256(bits, _mm256_set1_epi32(static_cast<int>(0x80000000u)));
    return _mm256_blendv_epi8(_mm256_blendv_epi8(r, quiet, nan), sign, tiny);
  }
  static SPYRE_INLINE __m256i pack(Vec x) {
    const __m256i low = _mm256_srli_epi32(round_high(x.a), 16), high = _mm256_srli_epi32(round_high(x.b), 16);
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
  }
  static SPYRE_INLINE void store(uint16_t* p, Vec x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), pack(x)); }
  static SPYRE_INLINE void store_n(uint16_t* p, Vec x, int64_t n) { store_words_n(p, pack(x), n); }
  static SPYRE_INLINE Vec round(Vec x) { return and_bits(from_bits({round_high(x.a), round_high(x.b)}), 0xffff0000u); }
};

struct WordScan {
  __m256i bad = _mm256_setzero_si256();
  SPYRE_INLINE void add(__m256i words, int exponent) {
    const __m256i e = _mm256_set1_epi16(static_cast<int16_t>(exponent));
    bad = _mm256_or_si256(bad, _mm256_cmpeq_epi16(_mm256_and_si256(words, e), e));
  }
  SPYRE_INLINE void add(const uint16_t* p, int exponent) {
    add(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), exponent);
  }
  SPYRE_INLINE void add_n(const uint16_t* p, int64_t n, int exponent) { add(words_n(p, n), exponent); }
  SPYRE_INLINE bool found() const { return _mm256_movemask_epi8(bad) != 0; }
};

}  // namespace
}  // namespace spyre::kernels
