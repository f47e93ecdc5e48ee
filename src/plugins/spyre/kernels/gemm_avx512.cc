#include "plugins/spyre/kernels/gemm_call.h"

#if defined(__AVX512F__)

#include <immintrin.h>

namespace spyre::kernels {
namespace {

#define SPYRE_INLINE static inline __attribute__((always_inline))

// 32 registers: 6 x 4 accumulators, 4 weights, 1 broadcast.
struct Zmm {
  __m512 v;
  using Raw = __m512i;
  static constexpr int kMaxRows = 6;
  static constexpr int columns_for(int) { return 4; }
  static constexpr int kMaxEvenOddRows = 3;
  static constexpr int even_odd_columns_for(int) { return 4; }

  SPYRE_INLINE Zmm zero() { return {_mm512_setzero_ps()}; }
  SPYRE_INLINE Zmm load(const float* p) { return {_mm512_loadu_ps(p)}; }
  SPYRE_INLINE Zmm broadcast(const float* p) { return {_mm512_set1_ps(*p)}; }
  SPYRE_INLINE Zmm fma(Zmm a, Zmm b, Zmm c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  SPYRE_INLINE Zmm add(Zmm a, Zmm b) { return {_mm512_add_ps(a.v, b.v)}; }
  SPYRE_INLINE Zmm load_f16(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  SPYRE_INLINE Raw load_raw(const uint16_t* p) { return _mm512_loadu_si512(p); }
  SPYRE_INLINE Zmm even(Raw r) { return {_mm512_castsi512_ps(_mm512_slli_epi32(r, 16))}; }
  SPYRE_INLINE Zmm odd(Raw r) {
    return {_mm512_castsi512_ps(_mm512_and_si512(r, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))};
  }
  inline __attribute__((always_inline)) void store(float* p) const { _mm512_storeu_ps(p, v); }
  inline __attribute__((always_inline)) void store_f16(uint16_t* p) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  // As f32_to_bf16 of base/half.h: nearest even; NaN made quiet; subnormals to zero of their sign.
  inline __attribute__((always_inline)) void store_bf16(uint16_t* p) const {
    const __m512i x = _mm512_castps_si512(v);
    const __m512i magnitude = _mm512_and_si512(x, _mm512_set1_epi32(0x7fffffff));
    const __m512i lsb = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
    __m512i y = _mm512_add_epi32(x, _mm512_add_epi32(lsb, _mm512_set1_epi32(0x7fff)));
    y = _mm512_mask_or_epi32(y, _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x7f800000)), x,
                             _mm512_set1_epi32(0x400000));
    y = _mm512_mask_and_epi32(y, _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(0x00800000)), x,
                              _mm512_set1_epi32(static_cast<int>(0x80000000u)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(y, 16)));
  }
};

#include "plugins/spyre/kernels/gemm_fma-inl.h"

}  // namespace

// On a Zen 5 converts run beside the multiply-adds: 88% of peak directly, 80% widened (64 rows). On Intel's cores they
// share ports: 62-66% directly, 91-93% from panels already widened; the _wide forms are for those.
void gemm_f16_avx512(const GemmCall& call) {
  run_gemm<F16Sequential<Zmm>, kNeverWiden>(call);
}
void gemm_f16_avx512_wide(const GemmCall& call) {
  run_gemm<F16Sequential<Zmm>, 24>(call);
}
void gemm_bf16_pair_avx512(const GemmCall& call) {
  run_gemm<Bf16Pair<Zmm>, kNeverWiden>(call);
}
void gemm_bf16_pair_avx512_wide(const GemmCall& call) {
  run_gemm<Bf16Pair<Zmm>, 24>(call);
}
void gemm_bf16_tile_avx512(const GemmCall& call) {
  run_gemm<Bf16Tile<Zmm>, kNeverWiden>(call);
}

}  // namespace spyre::kernels

#endif
