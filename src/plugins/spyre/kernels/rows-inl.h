// The row kernels, written once over the sixteen lanes of a simd_*.h file. Included by rows_<isa>.cc after that file;
// internal linkage.
#pragma once

#include "plugins/spyre/kernels/rows.h"
#include "plugins/spyre/kernels/simd_math-inl.h"

namespace spyre::kernels {
namespace {

// body(i, count): the chunk of elements [i, i + 16), of which the first `count` exist. The whole chunks come first,
// with the constant 16, so that the compiler makes them without the partial forms.
template <typename Body>
SPYRE_INLINE void for_chunks(int64_t n, Body body) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) body(i, int64_t{16});
  if (i < n) body(i, n - i);
}

template <typename T>
SPYRE_INLINE Vec get(const uint16_t* p, int64_t count) {
  return count == 16 ? T::load(p) : T::load_n(p, count);
}

template <typename T>
SPYRE_INLINE void put(uint16_t* p, Vec x, int64_t count) {
  if (count == 16) {
    T::store(p, x);
  } else {
    T::store_n(p, x, count);
  }
}

SPYRE_INLINE Vec get_f32(const float* p, int64_t count) {
  return count == 16 ? load(p) : load_n(p, count);
}

SPYRE_INLINE void put_f32(float* p, Vec x, int64_t count) {
  if (count == 16) {
    store(p, x);
  } else {
    store_n(p, x, count);
  }
}

// ---- Elementwise, a bundle at a time: f takes Vecs as well as Bundles.

constexpr int64_t kBundleElements = 16 * kBundleVecs;

template <typename T>
SPYRE_INLINE Bundle<kBundleVecs> get_bundle(const uint16_t* p) {
  return bundle<kBundleVecs>([&](int i) { return T::load(p + 16 * i); });
}

template <typename T>
SPYRE_INLINE void put_bundle(uint16_t* p, const Bundle<kBundleVecs>& x) {
#pragma GCC unroll 4
  for (int i = 0; i < kBundleVecs; ++i) T::store(p + 16 * i, x.v[i]);
}

template <typename T>
SPYRE_INLINE Vec rounded(const Vec& x) {
  return T::round(x);
}
template <typename T, int N>
SPYRE_INLINE Bundle<N> rounded(const Bundle<N>& x) {
  return bundle<N>([&](int i) { return T::round(x.v[i]); });
}

template <typename T, typename F>
SPYRE_INLINE void map(const uint16_t* x, uint16_t* y, int64_t n, F f) {
  int64_t i = 0;
  for (; i + kBundleElements <= n; i += kBundleElements) put_bundle<T>(y + i, f(get_bundle<T>(x + i)));
  for_chunks(n - i, [&](int64_t j, int64_t count) { put<T>(y + i + j, f(get<T>(x + i + j, count)), count); });
}

template <typename T, typename F>
SPYRE_INLINE void map2(const uint16_t* a, const uint16_t* b, uint16_t* y, int64_t n, F f) {
  int64_t i = 0;
  for (; i + kBundleElements <= n; i += kBundleElements) {
    put_bundle<T>(y + i, f(get_bundle<T>(a + i), get_bundle<T>(b + i)));
  }
  for_chunks(n - i, [&](int64_t j, int64_t count) {
    put<T>(y + i + j, f(get<T>(a + i + j, count), get<T>(b + i + j, count)), count);
  });
}

// Calls use(f) with the function of `op`: one switch for all that take an operation, the loop inside each case.
template <typename Use>
SPYRE_INLINE void with_unary(UnaryOp op, Use use) {
  switch (op) {
    case UnaryOp::kNeg:
      return use([](auto x) { return neg_bits(x); });
    case UnaryOp::kAbs:
      return use([](auto x) { return abs_bits(x); });
    case UnaryOp::kSqrt:
      return use([](auto x) { return square_root(x); });
    case UnaryOp::kRsqrt:
      return use([](auto x) { return set1(1.0f) / square_root(x); });
    case UnaryOp::kReciprocal:
      return use([](auto x) { return set1(1.0f) / x; });
    case UnaryOp::kExp:
      return use([](auto x) { return exp16(x); });
    case UnaryOp::kLog:
      return use([](auto x) { return log16(x); });
    case UnaryOp::kTanh:
      return use([](auto x) { return tanh16(x); });
    case UnaryOp::kSigmoid:
      return use([](auto x) { return sigmoid16(x); });
    case UnaryOp::kSilu:
      return use([](auto x) { return silu16(x); });
    case UnaryOp::kRelu:
      return use([](auto x) { return maximum16(x, zero()); });
    case UnaryOp::kGelu:
      return use([](auto x) { return gelu16(x); });
    case UnaryOp::kGeluTanh:
      return use([](auto x) { return gelu_tanh16(x); });
  }
}

template <typename Use>
SPYRE_INLINE void with_binary(BinaryOp op, Use use) {
  switch (op) {
    case BinaryOp::kAdd:
      return use([](auto a, auto b) { return a + b; });
    case BinaryOp::kSub:
      return use([](auto a, auto b) { return a - b; });
    case BinaryOp::kMul:
      return use([](auto a, auto b) { return a * b; });
    case BinaryOp::kDiv:
      return use([](auto a, auto b) { return a / b; });
    case BinaryOp::kMaximum:
      return use([](auto a, auto b) { return maximum16(a, b); });
    case BinaryOp::kMinimum:
      return use([](auto a, auto b) { return minimum16(a, b); });
  }
}

template <typename T>
void unary(UnaryOp op, const uint16_t* x, uint16_t* y, int64_t n) {
  with_unary(op, [&](auto f) { map<T>(x, y, n, f); });
}

template <typename T>
void binary(BinaryOp op, const uint16_t* a, const uint16_t* b, uint16_t* y, int64_t n) {
  with_binary(op, [&](auto f) { map2<T>(a, b, y, n, f); });
}

template <typename T>
void binary_scalar(BinaryOp op, const uint16_t* a, float b, uint16_t* y, int64_t n) {
  const Vec second = set1(b);
  with_binary(op, [&](auto f) { map<T>(a, y, n, [&](auto x) { return f(x, second); }); });
}

template <typename T>
void activate_mul(UnaryOp op, const uint16_t* gate, const uint16_t* up, uint16_t* y, int64_t n) {
  with_unary(op, [&](auto f) { map2<T>(gate, up, y, n, [&](auto g, auto u) { return rounded<T>(f(g)) * u; }); });
}

// ---- Reductions.

// tree16 of f over a row. Lanes past the end are not added: adding +0 would turn a -0 into +0.
template <typename T, typename F>
SPYRE_INLINE float sum_of(const uint16_t* x, int64_t n, F f) {
  Vec lanes = zero();
  int64_t i = 0;
  for (; i + kBundleElements <= n; i += kBundleElements) {
    const Bundle<kBundleVecs> y = f(get_bundle<T>(x + i));
#pragma GCC unroll 4
    for (int v = 0; v < kBundleVecs; ++v) lanes = lanes + y.v[v];
  }
  for_chunks(n - i, [&](int64_t j, int64_t count) {
    const Vec next = lanes + f(get<T>(x + i + j, count));
    lanes = count == 16 ? next : select(lanes_between(0, count), next, lanes);
  });
  return sum_tree(lanes);
}

// maximum16 as a tree: `greatest` would lose a NaN.
SPYRE_INLINE float maximum_tree(Vec x) {
  float lanes[16];
  store(lanes, x);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) {
      const float a = lanes[i], b = lanes[i + half];
      lanes[i] = a != a || a > b ? a : b;
    }
  }
  return lanes[0];
}

template <typename T>
SPYRE_INLINE float maximum_of(const uint16_t* x, int64_t n) {
  Vec lanes = set1(-__builtin_inff());
  for_chunks(n, [&](int64_t i, int64_t count) {
    const Vec next = maximum16(lanes, get<T>(x + i, count));
    lanes = count == 16 ? next : select(lanes_between(0, count), next, lanes);
  });
  return maximum_tree(lanes);
}

template <typename T>
uint16_t reduce(ReduceOp op, const uint16_t* x, int64_t n) {
  float r;
  if (op == ReduceOp::kMax) {
    r = maximum_of<T>(x, n);
  } else {
    r = sum_of<T>(x, n, [](auto v) { return v; });
    if (op == ReduceOp::kMean) r = r / static_cast<float>(n);
  }
  uint16_t word;
  T::store_n(&word, set1(r), 1);
  return word;
}

template <typename T>
void softmax(const uint16_t* x, uint16_t* y, int64_t n) {
  const Vec m = set1(maximum_of<T>(x, n));
  const Vec total = set1(sum_of<T>(x, n, [&](auto v) { return exp16(v - m); }));
  map<T>(x, y, n, [&](auto v) { return exp16(v - m) / total; });
}

// ---- Norms.

SPYRE_INLINE float reciprocal_root(float squares, int64_t n, float eps) {
  return 1.0f / __builtin_sqrtf(squares / static_cast<float>(n) + eps);
}

template <typename T, typename F>
SPYRE_INLINE void scale_row(const uint16_t* x, const uint16_t* weight, const uint16_t* bias, uint16_t* y, int64_t n,
                            F f) {
  for_chunks(n, [&](int64_t i, int64_t count) {
    Vec v = f(get<T>(x + i, count));
    if (weight != nullptr) v = T::round(v) * get<T>(weight + i, count);
    if (bias != nullptr) v = T::round(v) + get<T>(bias + i, count);
    put<T>(y + i, v, count);
  });
}

template <typename T>
void rms_norm(const uint16_t* x, const uint16_t* weight, float eps, uint16_t* y, int64_t n) {
  const Vec r = set1(reciprocal_root(sum_of<T>(x, n, [](auto v) { return v * v; }), n, eps));
  scale_row<T>(x, weight, nullptr, y, n, [&](Vec v) { return v * r; });
}

template <typename T>
void add_rms_norm(const uint16_t* x, const uint16_t* residual, const uint16_t* weight, float eps, uint16_t* sum,
                  uint16_t* y, int64_t n) {
  Vec lanes = zero();
  for_chunks(n, [&](int64_t i, int64_t count) {
    const Vec s = T::round(get<T>(x + i, count) + get<T>(residual + i, count));
    put<T>(sum + i, s, count);
    const Vec next = lanes + s * s;
    lanes = count == 16 ? next : select(lanes_between(0, count), next, lanes);
  });
  const Vec r = set1(reciprocal_root(sum_tree(lanes), n, eps));
  scale_row<T>(sum, weight, nullptr, y, n, [&](Vec v) { return v * r; });
}

template <typename T>
SPYRE_INLINE void scale_wide(const float* x, float r, const uint16_t* weight, uint16_t* y, int64_t n) {
  const Vec factor = set1(r);
  for_chunks(n, [&](int64_t i, int64_t count) {
    put<T>(y + i, get_f32(x + i, count) * factor * get<T>(weight + i, count), count);
  });
}

template <typename T>
void rms_norm_wide(const float* x, const uint16_t* weight, float eps, uint16_t* y, int64_t n) {
  Vec lanes = zero();
  for_chunks(n, [&](int64_t i, int64_t count) {
    const Vec v = get_f32(x + i, count);
    const Vec next = lanes + v * v;
    lanes = count == 16 ? next : select(lanes_between(0, count), next, lanes);
  });
  scale_wide<T>(x, reciprocal_root(sum_tree(lanes), n, eps), weight, y, n);
}

template <typename T>
void add_rms_norm_wide(const uint16_t* x, const float* residual, const uint16_t* weight, float eps, float* sum,
                       uint16_t* y, int64_t n) {
  Vec lanes = zero();
  for_chunks(n, [&](int64_t i, int64_t count) {
    const Vec s = get<T>(x + i, count) + get_f32(residual + i, count);
    put_f32(sum + i, s, count);
    const Vec next = lanes + s * s;
    lanes = count == 16 ? next : select(lanes_between(0, count), next, lanes);
  });
  scale_wide<T>(sum, reciprocal_root(sum_tree(lanes), n, eps), weight, y, n);
}

template <typename T>
void layer_norm(const uint16_t* x, const uint16_t* weight, const uint16_t* bias, float eps, uint16_t* y, int64_t n) {
  const Vec mean = set1(sum_of<T>(x, n, [](auto v) { return v; }) / static_cast<float>(n));
  const float squares = sum_of<T>(x, n, [&](auto v) {
    const auto d = v - mean;
    return d * d;
  });
  const Vec r = set1(reciprocal_root(squares, n, eps));
  scale_row<T>(x, weight, bias, y, n, [&](Vec v) { return (v - mean) * r; });
}

// ---- The rest.

template <typename T>
void rotate_half(const uint16_t* x, const uint16_t* cos, const uint16_t* sin, uint16_t* y, int64_t d) {
  const int64_t h = d / 2;
  for_chunks(h, [&](int64_t i, int64_t count) {
    const Vec a = get<T>(x + i, count), b = get<T>(x + h + i, count);
    const Vec c = get<T>(cos + i, count), s = get<T>(sin + i, count);
    put<T>(y + i, a * c - b * s, count);
    put<T>(y + h + i, a * s + b * c, count);
  });
}

template <typename T>
void to_f32(const uint16_t* x, float* y, int64_t n) {
  for_chunks(n, [&](int64_t i, int64_t count) { put_f32(y + i, get<T>(x + i, count), count); });
}

template <typename T>
void from_f32(const float* x, uint16_t* y, int64_t n) {
  for_chunks(n, [&](int64_t i, int64_t count) { put<T>(y + i, get_f32(x + i, count), count); });
}

template <typename T>
bool all_finite(const uint16_t* x, int64_t n) {
  constexpr int kExponent = T::kIsBf16 ? 0x7f80 : 0x7c00;
  WordScan scan;
  for_chunks(n, [&](int64_t i, int64_t count) {
    count == 16 ? scan.add(x + i, kExponent) : scan.add_n(x + i, count, kExponent);
  });
  return !scan.found();
}

template <typename T>
constexpr RowKernels row_table(const char* name, CpuLevel level) {
  return {name,
          T::kIsBf16 ? DType::kBF16 : DType::kF16,
          level,
          unary<T>,
          binary<T>,
          binary_scalar<T>,
          activate_mul<T>,
          rms_norm<T>,
          add_rms_norm<T>,
          rms_norm_wide<T>,
          add_rms_norm_wide<T>,
          layer_norm<T>,
          softmax<T>,
          reduce<T>,
          rotate_half<T>,
          to_f32<T>,
          from_f32<T>,
          all_finite<T>};
}

}  // namespace
}  // namespace spyre::kernels
