#include "base/vector_math.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/half.h"

namespace spyre {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Horner's rule, a multiply and an add per step.
template <size_t N>
float polynomial(const float (&c)[N], float x) {
  float p = c[N - 1];
  for (size_t i = N - 1; i-- > 0;) p = p * x + c[i];
  return p;
}

// Combines the sixteen lanes: l[i] op= l[i + 8], then 4, 2, 1.
template <typename Op>
float reduce_lanes(std::array<float, 16> lanes, Op op) {
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) lanes[i] = op(lanes[i], lanes[i + half]);
  }
  return lanes[0];
}

// tree16 of f(0), f(1), ..., f(n - 1).
template <typename F>
float tree16_of(int64_t n, F f) {
  std::array<float, 16> lanes{};
  for (int64_t i = 0; i < n; ++i) lanes[i % 16] = lanes[i % 16] + f(i);
  return reduce_lanes(lanes, [](float a, float b) { return a + b; });
}

// A dot product over n <= 64 positions in `order`, going on from `start`. a(i) and b(i) are 0 for a position that is
// padded or masked.
template <typename A, typename B>
float dot_in_order(DotOrder order, int64_t n, float start, A a, B b) {
  float c = start;
  if (order == DotOrder::kSequential) {
    for (int64_t i = 0; i < n; ++i) c = c + a(i) * b(i);
  } else if (order == DotOrder::kPair) {
    for (int64_t i = 0; i < n; i += 2) c = fma_of_16bit(a(i), b(i), fma_of_16bit(a(i + 1), b(i + 1), c));
  } else {
    for (int64_t first = 0; first < n; first += 32) {
      float even = 0, odd = 0;
      for (int64_t i = first; i < first + 32; i += 2) {
        even = fma_of_16bit(a(i), b(i), even);
        odd = fma_of_16bit(a(i + 1), b(i + 1), odd);
      }
      c = c + (even + odd);
    }
  }
  return c;
}

}  // namespace

float exp_f32(float x) {
  if (std::isnan(x)) return x;
  if (x < math::kExpLowest) return 0.0f;
  if (x > math::kExpHighest) return kInfinity;
  const float shifted = x * math::kLog2E + math::kRoundMagic;
  const float n = shifted - math::kRoundMagic;
  const float r = (x - n * math::kLn2High) - n * math::kLn2Low;
  float p = polynomial(math::kExp, r);
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // The low bits of `shifted` are the integer n: adding it to the exponent multiplies by 2^n, exactly.
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(shifted) << 23));
}

float log_f32(float x) {
  if (std::isnan(x)) return x;
  if (x == 0) return -kInfinity;
  if (x < 0) return kNaN;
  if (x == kInfinity) return x;
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const int32_t exponent = static_cast<int32_t>(bits - 0x3f3504f3u) >> 23;  // x / 2^exponent in [sqrt(1/2), sqrt(2))
  const float f = std::bit_cast<float>(bits - (static_cast<uint32_t>(exponent) << 23)) - 1.0f;
  const float n = static_cast<float>(exponent);
  const float f2 = f * f;
  float y = (f2 * f) * polynomial(math::kLog, f);
  y = y + n * math::kLn2Low;
  y = y - 0.5f * f2;
  y = y + f;
  return y + n * math::kLn2High;
}

float tanh_f32(float x) {
  const float a = std::fabs(x);
  if (a < math::kTanhSplit) {
    const float z = x * x;
    return x * (1.0f + z * polynomial(math::kTanh, z));
  }
  const float t = 1.0f - 2.0f / (exp_f32(2.0f * a) + 1.0f);
  return std::copysign(t, x);
}

float erf_f32(float x) {
  const float a = std::fabs(x);
  if (a < 1.0f) return x * polynomial(math::kErf, x * x);
  const float b = 4.0f < a ? 4.0f : a;  // a NaN goes on
  const float t = 1.0f - exp_f32(-polynomial(math::kErfcLog, b));
  return std::copysign(t, x);
}

float sigmoid_f32(float x) {
  return 1.0f / (1.0f + exp_f32(-x));
}
float silu_f32(float x) {
  return x / (1.0f + exp_f32(-x));
}
float gelu_f32(float x) {
  return (0.5f * x) * (1.0f + erf_f32(x * math::kSqrtHalf));
}

float gelu_tanh_f32(float x) {
  const float cube = (x * x) * x;
  const float u = math::kGeluTanhScale * (x + math::kGeluTanhCube * cube);
  return (0.5f * x) * (1.0f + tanh_f32(u));
}

float relu_f32(float x) {
  return maximum_f32(x, 0.0f);
}
float rsqrt_f32(float x) {
  return 1.0f / std::sqrt(x);
}

float maximum_f32(float a, float b) {
  if (std::isnan(a)) return a;
  return a > b ? a : b;
}

float minimum_f32(float a, float b) {
  if (std::isnan(a)) return a;
  return a < b ? a : b;
}

float round_to(DType dtype, float x) {
  if (dtype == DType::kF32) return x;
  return load_16bit(dtype, store_16bit(dtype, x));
}

float load_16bit(DType dtype, uint16_t word) {
  SPYRE_CHECK(is_16bit_float(dtype), "{}", to_string(dtype));
  return dtype == DType::kF16 ? f16_to_f32(word) : bf16_to_f32(word);
}

uint16_t store_16bit(DType dtype, float x) {
  SPYRE_CHECK(is_16bit_float(dtype), "{}", to_string(dtype));
  return dtype == DType::kF16 ? f32_to_f16(x) : f32_to_bf16(x);
}

float tree16_sum(const float* x, int64_t n) {
  return tree16_of(n, [&](int64_t i) { return x[i]; });
}

float tree16_maximum(const float* x, int64_t n) {
  std::array<float, 16> lanes;
  lanes.fill(-kInfinity);
  for (int64_t i = 0; i < n; ++i) lanes[i % 16] = maximum_f32(lanes[i % 16], x[i]);
  return reduce_lanes(lanes, maximum_f32);
}

float reduce_sum_row(DType dtype, const float* x, int64_t n) {
  return round_to(dtype, tree16_sum(x, n));
}

float reduce_mean_row(DType dtype, const float* x, int64_t n) {
  return round_to(dtype, tree16_sum(x, n) / static_cast<float>(n));
}

float reduce_max_row(const float* x, int64_t n) {
  return tree16_maximum(x, n);
}

void rms_norm_row(DType dtype, const float* x, const float* weight, float eps, float* y, int64_t n) {
  const float squares = tree16_of(n, [&](int64_t i) { return x[i] * x[i]; });
  const float r = 1.0f / std::sqrt(squares / static_cast<float>(n) + eps);
  for (int64_t i = 0; i < n; ++i) {
    y[i] = round_to(dtype, x[i] * r);
    if (weight != nullptr) y[i] = round_to(dtype, y[i] * weight[i]);
  }
}

void layer_norm_row(DType dtype, const float* x, const float* weight, const float* bias, float eps, float* y,
                    int64_t n) {
  const float count = static_cast<float>(n);
  const float mean = tree16_sum(x, n) / count;
  const float squares = tree16_of(n, [&](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
  const float r = 1.0f / std::sqrt(squares / count + eps);
  for (int64_t i = 0; i < n; ++i) {
    y[i] = round_to(dtype, (x[i] - mean) * r);
    if (weight != nullptr) y[i] = round_to(dtype, y[i] * weight[i]);
    if (bias != nullptr) y[i] = round_to(dtype, y[i] + bias[i]);
  }
}

void softmax_row(DType dtype, const float* x, float* y, int64_t n) {
  const float m = tree16_maximum(x, n);
  const float total = tree16_of(n, [&](int64_t i) { return exp_f32(x[i] - m); });
  for (int64_t i = 0; i < n; ++i) y[i] = round_to(dtype, exp_f32(x[i] - m) / total);
}

void rotate_half_row(DType dtype, const float* x, const float* cos, const float* sin, float* y, int64_t d) {
  const int64_t h = d / 2;
  for (int64_t i = 0; i < h; ++i) {
    y[i] = round_to(dtype, x[i] * cos[i] - x[i + h] * sin[i]);
    y[i + h] = round_to(dtype, x[i] * sin[i] + x[i + h] * cos[i]);
  }
}

void attend_step(const AttentionMath& math, const float* q, int64_t d, const float* k, int64_t k_stride, const float* v,
                 int64_t v_stride, int64_t lo, int64_t hi, AttentionState& state, float* acc) {
  if (lo >= hi) return;
  const auto visible = [&](int64_t j) { return lo <= j && j < hi; };
  float s[kAttentionStep];
  float m = state.m;
  for (int64_t j = lo; j < hi; ++j) {
    const float* key = k + j * k_stride;
    const auto at = [&](const float* x) { return [x, d](int64_t i) { return i < d ? x[i] : 0.0f; }; };
    s[j] = dot_in_order(math.order, d, 0.0f, at(q), at(key)) * math.scale;
    if (math.soft_cap > 0) s[j] = math.soft_cap * tanh_f32(s[j] / math.soft_cap);
    m = s[j] > m ? s[j] : m;
  }
  float p[kAttentionStep];
  for (int64_t j = 0; j < kAttentionStep; ++j) p[j] = visible(j) ? round_to(math.dtype, exp_f32(s[j] - m)) : 0.0f;
  const float r = state.l == 0 ? 0.0f : exp_f32(state.m - m);
  state.l = state.l * r + tree16_sum(p, kAttentionStep);
  state.m = m;
  for (int64_t i = 0; i < d; ++i) {
    acc[i] = dot_in_order(
        math.order, kAttentionStep, acc[i] * r, [&](int64_t j) { return p[j]; },
        [&](int64_t j) { return visible(j) ? v[j * v_stride + i] : 0.0f; });
  }
}

void attend_merge(AttentionState& earlier, float* acc, const AttentionState& later, const float* later_acc, int64_t d) {
  if (later.l == 0) return;
  if (earlier.l == 0) {
    earlier = later;
    std::copy(later_acc, later_acc + d, acc);
    return;
  }
  const float m = earlier.m > later.m ? earlier.m : later.m;
  const float r1 = exp_f32(earlier.m - m);
  const float r2 = exp_f32(later.m - m);
  earlier.m = m;
  earlier.l = earlier.l * r1 + later.l * r2;
  for (int64_t i = 0; i < d; ++i) acc[i] = acc[i] * r1 + later_acc[i] * r2;
}

void attend_reference(const AttentionMath& math, const float* q, int64_t d, const float* k, int64_t k_stride,
                      const float* v, int64_t v_stride, int64_t lo, int64_t hi, float* y) {
  AttentionState total;
  std::vector<float> acc(d, 0.0f);
  std::vector<float> range_acc(d);
  for (int64_t range = lo / kAttentionRange * kAttentionRange; range < hi; range += kAttentionRange) {
    AttentionState state;
    std::fill(range_acc.begin(), range_acc.end(), 0.0f);
    for (int64_t step = range; step < range + kAttentionRange; step += kAttentionStep) {
      const int64_t first = std::clamp<int64_t>(lo - step, 0, kAttentionStep);
      const int64_t last = std::clamp<int64_t>(hi - step, 0, kAttentionStep);
      if (first >= last) continue;
      attend_step(math, q, d, k + step * k_stride, k_stride, v + step * v_stride, v_stride, first, last, state,
                  range_acc.data());
    }
    attend_merge(total, acc.data(), state, range_acc.data(), d);
  }
  for (int64_t i = 0; i < d; ++i) y[i] = total.l == 0 ? 0.0f : round_to(math.dtype, acc[i] / total.l);
}

}  // namespace spyre
