// Several Vecs that go through a function side by side. A polynomial is one long chain of some 25 dependent
// instructions of 3-4 cycles each, and a core's scheduler holds two or three such chains: of one Vec after the other,
// most cycles pass waiting.
//
// A Bundle has the operations of a Vec, lane by lane, so a function over `auto` takes either. Included after one of the
// simd_*.h files; internal linkage like them.
#pragma once

#include <type_traits>

namespace spyre::kernels {
namespace {

// As many as the registers hold with their intermediate results. Of an exponential alone, three Vecs each: eight such
// chains keep both pipes of a Zen 4 busy, though some of their operands wait in memory.
constexpr int kBundleVecs = kAccumulators >= 24 ? 4 : kAccumulators >= 6 ? 2 : 1;
constexpr int kExpVecs = kAccumulators >= 24 ? 8 : kBundleVecs;

template <int N>
struct Bundle {
  Vec v[N];
};
template <int N>
struct BundleMask {
  Mask m[N];
};

template <int N, typename F>
SPYRE_INLINE Bundle<N> bundle(F f) {
  Bundle<N> r;
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) r.v[i] = f(i);
  return r;
}
template <int N, typename F>
SPYRE_INLINE BundleMask<N> bundle_mask(F f) {
  BundleMask<N> r;
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) r.m[i] = f(i);
  return r;
}

// Part i of an operand; a Vec stands for all parts.
template <int N>
SPYRE_INLINE Vec part(const Bundle<N>& x, int i) {
  return x.v[i];
}
SPYRE_INLINE Vec part(const Vec& x, int) {
  return x;
}

// The parts of an operation with at least one Bundle among its two operands; 0 for two Vecs, which have their own.
template <typename A, typename B>
constexpr int kParts = 0;
template <int N>
constexpr int kParts<Bundle<N>, Bundle<N>> = N;
template <int N>
constexpr int kParts<Bundle<N>, Vec> = N;
template <int N>
constexpr int kParts<Vec, Bundle<N>> = N;

#define SPYRE_BUNDLE_BINARY(name, expression)             \
  template <typename A, typename B, int N = kParts<A, B>> \
    requires(N > 0)                                       \
  SPYRE_INLINE Bundle<N> name(const A& a, const B& b) {   \
    return bundle<N>([&](int i) {                         \
      const Vec x = part(a, i), y = part(b, i);           \
      return expression;                                  \
    });                                                   \
  }
SPYRE_BUNDLE_BINARY(operator+, x + y)
SPYRE_BUNDLE_BINARY(operator-, x - y)
SPYRE_BUNDLE_BINARY(operator*, x* y)
SPYRE_BUNDLE_BINARY(operator/, x / y)
SPYRE_BUNDLE_BINARY(greater_of, greater_of(x, y))
SPYRE_BUNDLE_BINARY(lesser_of, lesser_of(x, y))
SPYRE_BUNDLE_BINARY(copy_sign, copy_sign(x, y))
SPYRE_BUNDLE_BINARY(scale_by_power, scale_by_power(x, y))
#undef SPYRE_BUNDLE_BINARY

template <int N>
SPYRE_INLINE Bundle<N> scale_by_power_where(const BundleMask<N>& kept, const Bundle<N>& x, const Bundle<N>& shifted) {
  return bundle<N>([&](int i) { return scale_by_power_where(kept.m[i], x.v[i], shifted.v[i]); });
}
template <int N>
SPYRE_INLINE Bundle<N> fma_f16(const Bundle<N>& a, const Vec& b, const Bundle<N>& c) {
  return bundle<N>([&](int i) { return fma_f16(a.v[i], b, c.v[i]); });
}
template <int N>
SPYRE_INLINE void settle(Bundle<N>& x) {
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) settle(x.v[i]);
}
template <int N>
SPYRE_INLINE Bundle<N> square_root(const Bundle<N>& x) {
  return bundle<N>([&](int i) { return square_root(x.v[i]); });
}
template <int N>
SPYRE_INLINE Bundle<N> abs_bits(const Bundle<N>& x) {
  return bundle<N>([&](int i) { return abs_bits(x.v[i]); });
}
template <int N>
SPYRE_INLINE Bundle<N> neg_bits(const Bundle<N>& x) {
  return bundle<N>([&](int i) { return neg_bits(x.v[i]); });
}
template <int N>
SPYRE_INLINE void split_exponent(const Bundle<N>& x, Bundle<N>& exponent, Bundle<N>& mantissa) {
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) split_exponent(x.v[i], exponent.v[i], mantissa.v[i]);
}

template <typename A, typename B, int N = kParts<A, B>>
  requires(N > 0)
SPYRE_INLINE BundleMask<N> less(const A& a, const B& b) {
  return bundle_mask<N>([&](int i) { return less(part(a, i), part(b, i)); });
}
template <typename A, typename B, int N = kParts<A, B>>
  requires(N > 0)
SPYRE_INLINE BundleMask<N> equal(const A& a, const B& b) {
  return bundle_mask<N>([&](int i) { return equal(part(a, i), part(b, i)); });
}
template <typename A, typename B, int N = kParts<A, B>>
  requires(N > 0)
SPYRE_INLINE BundleMask<N> not_less(const A& a, const B& b) {
  return bundle_mask<N>([&](int i) { return not_less(part(a, i), part(b, i)); });
}
template <int N>
SPYRE_INLINE BundleMask<N> is_nan(const Bundle<N>& x) {
  return bundle_mask<N>([&](int i) { return is_nan(x.v[i]); });
}
template <int N, typename A, typename B>
SPYRE_INLINE Bundle<N> select(const BundleMask<N>& m, const A& yes, const B& no) {
  return bundle<N>([&](int i) { return select(m.m[i], part(yes, i), part(no, i)); });
}

}  // namespace
}  // namespace spyre::kernels
