// The functions of base/vector_math.h over sixteen lanes: the same operations in the same order, so the same bits.
// Included after one of the simd_*.h files; internal linkage like them.
#pragma once

#include "base/vector_math.h"

namespace spyre::kernels {
namespace {

template <int N>
SPYRE_INLINE Vec polynomial(const float (&c)[N], Vec x) {
  Vec p = set1(c[N - 1]);
#pragma GCC unroll 16
  for (int i = N - 2; i >= 0; --i) p = p * x + set1(c[i]);
  return p;
}

SPYRE_INLINE Vec exp_in_range(Vec x) {
  const Vec magic = set1(math::kRoundMagic);
  const Vec shifted = x * set1(math::kLog2E) + magic;
  const Vec n = shifted - magic;
  const Vec r = (x - n * set1(math::kLn2High)) - n * set1(math::kLn2Low);
  Vec p = polynomial(math::kExp, r);
  p = p * r + set1(1.0f);
  p = p * r + set1(1.0f);
  return scale_by_power(p, shifted);
}

// exp of x <= 0, -infinity or NaN.
SPYRE_INLINE Vec exp_not_positive(Vec x) {
  const Vec y = select(less(x, set1(math::kExpLowest)), zero(), exp_in_range(x));
  return select(is_nan(x), x, y);
}

SPYRE_INLINE Vec exp16(Vec x) {
  return select(less(set1(math::kExpHighest), x), set1(__builtin_inff()), exp_not_positive(x));
}

SPYRE_INLINE Vec log16(Vec x) {
  Vec n, m;
  split_exponent(x, n, m);
  const Vec f = m - set1(1.0f);
  const Vec f2 = f * f;
  Vec y = (f2 * f) * polynomial(math::kLog, f);
  y = y + n * set1(math::kLn2Low);
  y = y - set1(0.5f) * f2;
  y = y + f;
  y = y + n * set1(math::kLn2High);
  const Vec infinity = set1(__builtin_inff());
  y = select(equal(x, infinity), infinity, y);
  y = select(less(x, zero()), set1(__builtin_nanf("")), y);
  y = select(equal(x, zero()), set1(-__builtin_inff()), y);
  return select(is_nan(x), x, y);
}

SPYRE_INLINE Vec tanh16(Vec x) {
  const Vec a = abs_bits(x);
  const Vec z = x * x;
  const Vec small = x * (set1(1.0f) + z * polynomial(math::kTanh, z));
  const Vec large = set1(1.0f) - set1(2.0f) / (exp16(set1(2.0f) * a) + set1(1.0f));
  return select(less(a, set1(math::kTanhSplit)), small, copy_sign(large, x));
}

SPYRE_INLINE Vec erf16(Vec x) {
  const Vec a = abs_bits(x);
  const Vec small = x * polynomial(math::kErf, x * x);
  const Vec b = lesser_of(set1(4.0f), a);  // a when it is NaN
  const Vec large = set1(1.0f) - exp16(neg_bits(polynomial(math::kErfcLog, b)));
  return select(less(a, set1(1.0f)), small, copy_sign(large, x));
}

SPYRE_INLINE Vec sigmoid16(Vec x) {
  return set1(1.0f) / (set1(1.0f) + exp16(neg_bits(x)));
}
SPYRE_INLINE Vec silu16(Vec x) {
  return x / (set1(1.0f) + exp16(neg_bits(x)));
}
SPYRE_INLINE Vec gelu16(Vec x) {
  return (set1(0.5f) * x) * (set1(1.0f) + erf16(x * set1(math::kSqrtHalf)));
}

SPYRE_INLINE Vec gelu_tanh16(Vec x) {
  const Vec cube = (x * x) * x;
  const Vec u = set1(math::kGeluTanhScale) * (x + set1(math::kGeluTanhCube) * cube);
  return (set1(0.5f) * x) * (set1(1.0f) + tanh16(u));
}

SPYRE_INLINE Vec maximum16(Vec a, Vec b) {
  return select(is_nan(a), a, greater_of(a, b));
}
SPYRE_INLINE Vec minimum16(Vec a, Vec b) {
  return select(is_nan(a), a, lesser_of(a, b));
}

}  // namespace
}  // namespace spyre::kernels
