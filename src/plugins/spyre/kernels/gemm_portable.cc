#include <math.h>

#include "plugins/spyre/kernels/gemm_call.h"

namespace spyre::kernels {
namespace {

#define SPYRE_INLINE static inline __attribute__((always_inline))

typedef float Float4 __attribute__((vector_size(16)));
typedef uint16_t Half4 __attribute__((vector_size(8)));
typedef int32_t Int4 __attribute__((vector_size(16)));
typedef uint32_t Word4 __attribute__((vector_size(16)));

SPYRE_INLINE Float4 load4(const void* p) {
  Float4 v;
  __builtin_memcpy(&v, p, 16);
  return v;
}
SPYRE_INLINE Word4 load_words(const void* p) {
  Word4 v;
  __builtin_memcpy(&v, p, 16);
  return v;
}
SPYRE_INLINE Word4 widen4(const uint16_t* p) {
  Half4 h;
  __builtin_memcpy(&h, p, 8);
  return __builtin_convertvector(h, Word4);
}
SPYRE_INLINE Word4 select(Word4 mask, Word4 yes, Word4 no) {
  return (mask & yes) | (~mask & no);
}

// f16 to fp32 on four lanes. The exponent moves from bias 15 to 127 by adding 112; infinity and NaN go on to 255 by
// adding 112 once more. A subnormal half m * 2^-24 is read as 2^-14 * (1 + m / 1024), and 2^-14 taken off again: exact,
// and no fp32 subnormal appears on the way (denormals-are-zero is on). Signed compares: SSE has no others.
SPYRE_INLINE Float4 f16_to_f32x4(Word4 h) {
  const Word4 sign = (h & 0x8000u) << 16;
  const Word4 magnitude = h & 0x7fffu;
  const Word4 shifted = magnitude << 13;
  const Word4 is_small = (Word4)((Int4)magnitude < 0x400);
  const Word4 is_special = (Word4)((Int4)magnitude > 0x7bff);
  const Word4 normal = shifted + (112u << 23) + (is_special & (112u << 23));
  const Word4 small = (Word4)((Float4)(shifted + (113u << 23)) - 0x1p-14f);
  return (Float4)(select(is_small, small, normal) | sign);
}

SPYRE_INLINE uint16_t f32_to_bf16_word(uint32_t x) {
  const uint32_t magnitude = x & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>((x >> 16) | 0x0040u);
  if (magnitude < 0x00800000u) return static_cast<uint16_t>((x >> 16) & 0x8000u);
  return static_cast<uint16_t>((x + 0x7fffu + ((x >> 16) & 1u)) >> 16);
}

// As f32_to_f16 of base/half.h, which this file may not include: its inline functions have external linkage.
SPYRE_INLINE uint16_t f32_to_f16_word(uint32_t x) {
  const uint32_t sign = (x >> 16) & 0x8000u;
  const uint32_t magnitude = x & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude >= 0x38800000u) {
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
  }
  if (magnitude < 0x33000000u) return static_cast<uint16_t>(sign);
  const uint32_t shift = 126 - (magnitude >> 23);
  const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t kept = mantissa >> shift;
  const uint32_t rest = mantissa & ((1u << shift) - 1u);
  const uint32_t half = 1u << (shift - 1);
  return static_cast<uint16_t>(sign | (kept + (rest > half || (rest == half && (kept & 1u)))));
}

// Sixteen lanes as four vectors of four: what SSE, NEON, VSX and z/Vector all have. On a machine without fused
// multiply-add the product is rounded first; that gives the same bits because products of 16-bit operands are exact,
// and where one is not (bf16 products outside the normal range) run_gemm takes Fused = true, which calls fmaf.
template <bool Fused>
struct Vec4 {
  Float4 q[4];
  struct Raw {
    Word4 q[4];
  };
  static constexpr int kMaxRows = 2;
  static constexpr int columns_for(int) { return 1; }
  static constexpr int kMaxEvenOddRows = 1;
  static constexpr int even_odd_columns_for(int) { return 1; }

  SPYRE_INLINE Vec4 zero() { return {}; }
  SPYRE_INLINE Vec4 load(const float* p) { return {{load4(p), load4(p + 4), load4(p + 8), load4(p + 12)}}; }
  SPYRE_INLINE Vec4 broadcast(const float* p) {
    const Float4 x = {*p, *p, *p, *p};
    return {{x, x, x, x}};
  }
  SPYRE_INLINE Float4 fma4(Float4 a, Float4 b, Float4 c) {
    if constexpr (Fused) {
      Float4 out;
      for (int i = 0; i < 4; ++i) out[i] = __builtin_fmaf(a[i], b[i], c[i]);
      return out;
    } else {
      return c + a * b;
    }
  }
  SPYRE_INLINE Vec4 fma(const Vec4& a, const Vec4& b, const Vec4& c) {
    return {{fma4(a.q[0], b.q[0], c.q[0]), fma4(a.q[1], b.q[1], c.q[1]), fma4(a.q[2], b.q[2], c.q[2]),
             fma4(a.q[3], b.q[3], c.q[3])}};
  }
  SPYRE_INLINE Vec4 add(const Vec4& a, const Vec4& b) {
    return {{a.q[0] + b.q[0], a.q[1] + b.q[1], a.q[2] + b.q[2], a.q[3] + b.q[3]}};
  }
  SPYRE_INLINE Vec4 load_f16(const uint16_t* p) {
    return {{f16_to_f32x4(widen4(p)), f16_to_f32x4(widen4(p + 4)), f16_to_f32x4(widen4(p + 8)),
             f16_to_f32x4(widen4(p + 12))}};
  }
  // A pair is two 16-bit words; which half of the 32-bit word holds the even one depends on the byte order.
  static constexpr bool kLittle = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
  SPYRE_INLINE Raw load_raw(const uint16_t* p) {
    return {{load_words(p), load_words(p + 8), load_words(p + 16), load_words(p + 24)}};
  }
  SPYRE_INLINE Float4 low(Word4 w) { return (Float4)(w << 16); }
  SPYRE_INLINE Float4 high(Word4 w) { return (Float4)(w & 0xffff0000u); }
  SPYRE_INLINE Vec4 even(const Raw& r) {
    if constexpr (kLittle) return {{low(r.q[0]), low(r.q[1]), low(r.q[2]), low(r.q[3])}};
    return {{high(r.q[0]), high(r.q[1]), high(r.q[2]), high(r.q[3])}};
  }
  SPYRE_INLINE Vec4 odd(const Raw& r) {
    if constexpr (kLittle) return {{high(r.q[0]), high(r.q[1]), high(r.q[2]), high(r.q[3])}};
    return {{low(r.q[0]), low(r.q[1]), low(r.q[2]), low(r.q[3])}};
  }
  inline __attribute__((always_inline)) void store(float* p) const { __builtin_memcpy(p, q, 64); }
  inline __attribute__((always_inline)) void store_f16(uint16_t* p) const {
    for (int i = 0; i < 16; ++i) p[i] = f32_to_f16_word(((Word4)q[i / 4])[i % 4]);
  }
  inline __attribute__((always_inline)) void store_bf16(uint16_t* p) const {
    for (int i = 0; i < 16; ++i) p[i] = f32_to_bf16_word(((Word4)q[i / 4])[i % 4]);
  }
};

#include "plugins/spyre/kernels/gemm_fma-inl.h"

#if defined(__FP_FAST_FMAF)
constexpr bool kHasFma = true;
#else
constexpr bool kHasFma = false;
#endif

// Exponent fields of the finite, normal, nonzero bf16 values seen. Zero (subnormals count as zero), infinity and NaN
// never round in a product, and drop out by wrapping around: 0 - 1 above every exponent, 255 + 1 below. No branches:
// the compiler makes it eight values per instruction.
struct ExponentRange {
  uint16_t least_less_one = 0xffff, greatest_plus_one = 0;
  inline void see(const uint16_t* values, int64_t count) {
    uint16_t least = least_less_one, greatest = greatest_plus_one;
    for (int64_t i = 0; i < count; ++i) {
      const uint16_t exponent = (values[i] >> 7) & 0xff;
      const uint16_t below = static_cast<uint16_t>(exponent - 1);
      const uint16_t above = static_cast<uint16_t>((exponent + 1) & 0xff);
      least = below < least ? below : least;
      greatest = above > greatest ? above : greatest;
    }
    least_less_one = least;
    greatest_plus_one = greatest;
  }
};

void see_columns(const GemmCall& g, const GemmRange& range, int64_t multiple, ExponentRange& seen) {
  const int64_t panel = ceil_div(g.k, multiple) * multiple * 64;
  const int64_t end = ceil_div(range.first_column + range.columns, 16);
  for (int64_t v = range.first_column / 16; v < end;) {
    const int64_t next = min_of((v / 4 + 1) * 4, end);
    const uint16_t* p = g.panels + v / 4 * panel + v % 4 * 32;
    if (next - v == 4) {
      seen.see(p, panel);
    } else {
      for (int64_t i = 0; i < g.k; i += 2, p += 128) seen.see(p, (next - v) * 32);
    }
    v = next;
  }
}

// A product lies in [2^(ea + eb - 254), 2^(ea + eb - 252)): normal, hence exact, when 128 <= ea + eb <= 380.
bool products_are_exact(const GemmCall& g, int64_t multiple) {
  ExponentRange a, b;
  for (int64_t r = 0; r < g.rows; ++r) a.see(g.a + r * g.lda, g.k);
  for (int64_t r = 0; r <= g.more_count; ++r) see_columns(g, range_of(g, r), multiple, b);
  return a.least_less_one + b.least_less_one + 2 >= 128 && a.greatest_plus_one + b.greatest_plus_one - 2 <= 380;
}

template <template <class> class Order>
void run_bf16(const GemmCall& call) {
  if (!kHasFma && products_are_exact(call, Order<Vec4<false>>::kMultiple)) {
    run_gemm<Order<Vec4<false>>, 3>(call);
  } else {
    run_gemm<Order<Vec4<true>>, 3>(call);
  }
}

}  // namespace

void gemm_f16_portable(const GemmCall& call) {
  run_gemm<F16Sequential<Vec4<kHasFma>>, 3>(call);
}
void gemm_bf16_pair_portable(const GemmCall& call) {
  run_bf16<Bf16Pair>(call);
}
void gemm_bf16_tile_portable(const GemmCall& call) {
  run_bf16<Bf16Tile>(call);
}

}  // namespace spyre::kernels
