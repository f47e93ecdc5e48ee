// The functions of base/vector_math.h over sixteen lanes: the same operations in the same order, so the same bits.
// Included after one of the simd_*.h files; internal linkage like them.
#pragma once

#include "base/vector_math.h"
#include "plugins/spyre/kernels/simd_bundle-inl.h"

namespace spyre::kernels {
namespace {

// V is a Vec or a Bundle of them.
template <int N, typename V>
SPYRE_INLINE V polynomial(const float (&c)[N], const V& x) {
  V p = set1(c[N - 1]) * x + set1(c[N - 2]);
#pragma GCC unroll 16
  for (int i = N - 3; i >= 0; --i) {
    settle(p);
    p = p * x + set1(c[i]);
  }
  settle(p);
  return p;
}

// exp(x) = p 2^n for x between kExpLowest and kExpHighest: returns scale(p, n + 1.5 * 2^23). Not p itself: gcc 12 keeps
// a Bundle of AVX2 that has been settled and is then returned in memory, and halves the speed.
template <typename V, typename F>
SPYRE_INLINE V exp_by(const V& x, F scale) {
  const Vec magic = set1(math::kRoundMagic);
  V shifted = x * set1(math::kLog2E) + magic;
  settle(shifted);
  V n = shifted - magic;
  settle(n);
  V r = fma_f16(n, set1(-math::kLn2High), x) - n * set1(math::kLn2Low);  // the first product is exact
  settle(r);
  V p = polynomial(math::kExp, r);
  p = p * r + set1(1.0f);
  settle(p);
  p = p * r + set1(1.0f);
  settle(p);
  return scale(p, shifted);
}

template <typename V>
SPYRE_INLINE V exp_in_range(const V& x) {
  return exp_by(x, [](const V& p, const V& shifted) { return scale_by_power(p, shifted); });
}

// exp of x <= 0, -infinity or NaN.
template <typename V>
SPYRE_INLINE V exp_not_positive(const V& x) {
  const V y = select(less(x, set1(math::kExpLowest)), zero(), exp_in_range(x));
  return select(is_nan(x), x, y);
}

template <typename V>
SPYRE_INLINE V exp16(const V& x) {
  return select(less(set1(math::kExpHighest), x), set1(__builtin_inff()), exp_not_positive(x));
}

template <typename V>
SPYRE_INLINE V log16(const V& x) {
  V n, m;
  split_exponent(x, n, m);
  const V f = m - set1(1.0f);
  const V f2 = f * f;
  V y = (f2 * f) * polynomial(math::kLog, f);
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

template <typename V>
SPYRE_INLINE V tanh16(const V& x) {
  const V a = abs_bits(x);
  const V z = x * x;
  const V small = x * (set1(1.0f) + z * polynomial(math::kTanh, z));
  const V large = set1(1.0f) - set1(2.0f) / (exp16(set1(2.0f) * a) + set1(1.0f));
  return select(less(a, set1(math::kTanhSplit)), small, copy_sign(large, x));
}

template <typename V>
SPYRE_INLINE V erf16(const V& x) {
  const V a = abs_bits(x);
  const V small = x * polynomial(math::kErf, x * x);
  const V b = lesser_of(set1(4.0f), a);  // a when it is NaN
  const V large = set1(1.0f) - exp16(neg_bits(polynomial(math::kErfcLog, b)));
  return select(less(a, set1(1.0f)), small, copy_sign(large, x));
}

template <typename V>
SPYRE_INLINE V sigmoid16(const V& x) {
  return set1(1.0f) / (set1(1.0f) + exp16(neg_bits(x)));
}
template <typename V>
SPYRE_INLINE V silu16(const V& x) {
  return x / (set1(1.0f) + exp16(neg_bits(x)));
}
template <typename V>
SPYRE_INLINE V gelu16(const V& x) {
  return (set1(0.5f) * x) * (set1(1.0f) + erf16(x * set1(math::kSqrtHalf)));
}

template <typename V>
SPYRE_INLINE V gelu_tanh16(const V& x) {
  const V cube = (x * x) * x;
  const V u = set1(math::kGeluTanhScale) * (x + set1(math::kGeluTanhCube) * cube);
  return (set1(0.5f) * x) * (set1(1.0f) + tanh16(u));
}

template <typename A, typename B>
SPYRE_INLINE auto maximum16(const A& a, const B& b) {
  return select(is_nan(a), a, greater_of(a, b));
}
template <typename A, typename B>
SPYRE_INLINE auto minimum16(const A& a, const B& b) {
  return select(is_nan(a), a, lesser_of(a, b));
}

}  // namespace
}  // namespace spyre::kernels
