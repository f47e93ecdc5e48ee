#if defined(__x86_64__)
#include "plugins/spyre/kernels/simd_avx512.h"
// The lanes come first, then the orders.
#include "plugins/spyre/kernels/attention_dots-inl.h"
// And what is built on both.
#include "plugins/spyre/kernels/attention-inl.h"

namespace spyre::kernels {
namespace {

// The pair order as one instruction: vdpbf16ps adds the odd product first, then the even one, flushing subnormals.
struct NativePairDot {
  using Element = Bf16;
  using A = uint32_t;  // a pair
  static constexpr int kKeysPerUnit = 2;
  static constexpr int kWordsPerUnit = 1;
  static constexpr int kElementsPerWord = 2;
  static constexpr int kGroupUnits = 1;
  static constexpr int kAskRows = 8;  // never: two products and sums in one instruction
  static constexpr int kAccumulatorVecs = kAccumulators;
  static SPYRE_INLINE int64_t units(int64_t d) { return (d + 1) / 2; }
  static SPYRE_INLINE void pack(const uint16_t* q, int64_t d, A* out) {
    for (int64_t i = 0; i < d; i += 32) {
      const int64_t count = d - i < 32 ? d - i : 32;
      const __mmask32 lanes = static_cast<__mmask32>((uint64_t{1} << count) - 1);
      _mm512_store_si512(out + i / 2, _mm512_maskz_loadu_epi16(lanes, q + i));
    }
  }
  // Two vectors of weights to one of words, and each back by one permutation: word i to the upper half of lane i.
  template <int N>
  static SPYRE_INLINE Bundle<N> put(A* out, const Bundle<N>& p) {
    static_assert(N % 2 == 0);
    Bundle<N> rounded;
#pragma GCC unroll 8
    for (int i = 0; i < N; i += 2) {
      const __m512i words = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(p.v[i + 1].v, p.v[i].v));
      _mm512_store_si512(out + i * 8, words);
      rounded.v[i] = upper_halves(words, 0);
      rounded.v[i + 1] = upper_halves(words, 16);
    }
    return rounded;
  }
  static SPYRE_INLINE Vec upper_halves(__m512i words, int first) {
    const __m512i order =
        _mm512_add_epi32(_mm512_slli_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), 16),
                         _mm512_set1_epi32(first << 16));
    return from_bits(_mm512_maskz_permutexvar_epi16(0xaaaaaaaau, order, words));
  }
  static SPYRE_INLINE Vec dot(Vec c, __m512i a, __m512i b) {
    return {_mm512_dpbf16_ps(c.v, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b))};
  }
  template <int R, int NV>
  static SPYRE_INLINE void run(const A* a, int64_t lda, const uint16_t* b, int64_t first, int64_t last,
                               Vec (&c)[R][NV]) {
    for (int64_t u = first; u < last; ++u) {
      __m512i w[NV];
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) w[v] = load_pairs(b + u * 128 + v * 32).v;
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m512i s = _mm512_set1_epi32(static_cast<int>(a[r * lda + u]));
#pragma GCC unroll 4
        for (int v = 0; v < NV; ++v) c[r][v] = dot(c[r][v], s, w[v]);
      }
    }
  }
  template <int R, int NV>
  static SPYRE_INLINE void masked_unit(const A* a, int64_t lda, const uint16_t* b, int u, const int* lo, const int* hi,
                                       Vec (&c)[R][NV]) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const auto seen = [&](int key) { return lo[r] <= key && key < hi[r]; };
      const uint32_t mask = (seen(2 * u) ? 0x0000ffffu : 0u) | (seen(2 * u + 1) ? 0xffff0000u : 0u);
      if (mask == 0) continue;  // before or behind what the row sees: run_masked_units adds the zero
      const __m512i s = _mm512_set1_epi32(static_cast<int>(a[r * lda + u]));
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) {
        const __m512i w =
            _mm512_and_si512(load_pairs(b + u * 128 + v * 32).v, _mm512_set1_epi32(static_cast<int>(mask)));
        c[r][v] = dot(c[r][v], s, w);
      }
    }
  }
  template <int R, int NV>
  static SPYRE_INLINE void run_masked(const A* a, int64_t lda, const uint16_t* b, const int* lo, const int* hi,
                                      Vec (&c)[R][NV]) {
    run_masked_units<NativePairDot>(a, lda, b, lo, hi, c);
  }
};

}  // namespace

constinit const AttentionKernels kAttentionKernelsAvx512Bf16[3] = {
    attention_table<SequentialDot>("attention_f16_avx512_bf16", DotOrder::kSequential, CpuLevel::kAvx512Bf16),
    attention_table<NativePairDot>("attention_bf16_pair_avx512_bf16", DotOrder::kPair, CpuLevel::kAvx512Bf16),
    attention_table<TileDot>("attention_bf16_tile_avx512_bf16", DotOrder::kTile, CpuLevel::kAvx512Bf16)};

}  // namespace spyre::kernels
#endif
