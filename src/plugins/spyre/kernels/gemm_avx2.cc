#include "plugins/spyre/kernels/gemm_call.h"

#if defined(__AVX2__)

#include <immintrin.h>

namespace spyre::kernels {
namespace {

#define SPYRE_INLINE static inline __attribute__((always_inline))

// 16 registers: 6 x 16 columns are 12 accumulators, 2 weights, 1 broadcast. 16 lanes are two registers.
struct Ymm2 {
  __m256 lo, hi;
  struct Raw {
    __m256i lo, hi;
  };
  static constexpr int kMaxRows = 6;
  static constexpr int columns_for(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }
  static constexpr int kMaxEvenOddRows = 3;
  static constexpr int even_odd_columns_for(int rows) { return rows == 1 ? 2 : 1; }

  SPYRE_INLINE Ymm2 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  SPYRE_INLINE Ymm2 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  SPYRE_INLINE Ymm2 broadcast(const float* p) {
    const __m256 x = _mm256_broadcast_ss(p);
    return {x, x};
  }
  SPYRE_INLINE Ymm2 fma(Ymm2 a, Ymm2 b, Ymm2 c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  }
  SPYRE_INLINE Ymm2 add(Ymm2 a, Ymm2 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
  SPYRE_INLINE Ymm2 load_f16(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
  }
  SPYRE_INLINE Raw load_raw(const uint16_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16))};
  }
  SPYRE_INLINE Ymm2 even(const Raw& r) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(r.lo, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(r.hi, 16))};
  }
  SPYRE_INLINE Ymm2 odd(const Raw& r) {
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    return {_mm256_castsi256_ps(_mm256_and_si256(r.lo, high)), _mm256_castsi256_ps(_mm256_and_si256(r.hi, high))};
  }
  inline __attribute__((always_inline)) void store(float* p) const {
    _mm256_storeu_ps(p, lo);
    _mm256_storeu_ps(p + 8, hi);
  }
  inline __attribute__((always_inline)) void store_f16(uint16_t* p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(hi, _MM_FROUND_TO_NEAREST_INT));
  }
  // As f32_to_bf16 of base/half.h: nearest even; NaN made quiet; subnormals to zero of their sign. One bf16 per 32
  // bits.
  SPYRE_INLINE __m256i to_bf16(__m256 v) {
    const __m256i x = _mm256_castps_si256(v);
    const __m256i magnitude = _mm256_and_si256(x, _mm256_set1_epi32(0x7fffffff));
    const __m256i lsb = _mm256_and_si256(_mm256_srli_epi32(x, 16), _mm256_set1_epi32(1));
    const __m256i nearest = _mm256_add_epi32(x, _mm256_add_epi32(lsb, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(x, _mm256_set1_epi32(0x400000));
    const __m256i sign = _mm256_and_si256(x, _mm256_set1_epi32(static_cast<int>(0x80000000u)));
    const __m256i is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
    const __m256i is_tiny = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x00800000), magnitude);
    const __m256i y = _mm256_blendv_epi8(_mm256_blendv_epi8(nearest, quiet, is_nan), sign, is_tiny);
    return _mm256_srli_epi32(y, 16);
  }
  inline __attribute__((always_inline)) void store_bf16(uint16_t* p) const {
    const __m256i packed = _mm256_packus_epi32(to_bf16(lo), to_bf16(hi));  // 128-bit halves: lo, hi, lo, hi
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
  }
};

#include "plugins/spyre/kernels/gemm_fma-inl.h"

}  // namespace

// Widening measured on a Zen 5, share of the ymm FMA peak at 64 rows, without and with: pair 61 and 83% (shifts and
// masks double the work per weight, and sixteen registers leave no room to keep the words), tile 73 and 79%, f16 92 and
// 84%.
void gemm_f16_avx2(const GemmCall& call) {
  run_gemm<F16Sequential<Ymm2>, kNeverWiden>(call);
}
void gemm_bf16_pair_avx2(const GemmCall& call) {
  run_gemm<Bf16Pair<Ymm2>, 16>(call);
}
void gemm_bf16_tile_avx2(const GemmCall& call) {
  run_gemm<Bf16Tile<Ymm2>, 16>(call);
}

}  // namespace spyre::kernels

#endif
