#include "base/vector_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "base/cpu.h"
#include "base/half.h"

namespace spyre {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Distance of `got` from the true value in units of the last place of the nearest float.
double ulps(float got, double want) {
  const float near = static_cast<float>(want);
  int exponent = 0;
  std::frexp(std::max(std::fabs(near), std::numeric_limits<float>::min()), &exponent);
  return std::fabs(static_cast<double>(got) - want) / std::ldexp(1.0, exponent - 24);
}

template <typename F, typename G>
double worst_ulps(float from, float to, F f, G g) {
  double worst = 0;
  const int count = 400000;
  for (int i = 0; i <= count; ++i) {
    const float x = from + (to - from) * (static_cast<float>(i) / count);
    worst = std::max(worst, ulps(f(x), g(static_cast<double>(x))));
  }
  return worst;
}

std::vector<float> random_row(int64_t n, DType dtype, uint32_t seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> x(n);
  for (float& v : x) v = round_to(dtype, normal(random));
  return x;
}

TEST(VectorMath, ExpIsWithinTwoUlpAndKeepsItsEdges) {
  ScopedFlushDenormals flush;
  const auto exp_d = [](double x) { return std::exp(x); };
  EXPECT_LE(worst_ulps(-87.33f, 88.72f, exp_f32, exp_d), 2.0);
  EXPECT_LE(worst_ulps(-1.0f, 1.0f, exp_f32, exp_d), 2.0);
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_EQ(exp_f32(-0.0f), 1.0f);
  EXPECT_GT(exp_f32(-87.33f), 0.0f);
  EXPECT_EQ(std::bit_cast<uint32_t>(exp_f32(-87.34f)), 0u);
  EXPECT_EQ(exp_f32(-kInf), 0.0f);
  EXPECT_EQ(exp_f32(88.73f), kInf);
  EXPECT_TRUE(std::isfinite(exp_f32(88.72f)));
  EXPECT_EQ(exp_f32(kInf), kInf);
  EXPECT_TRUE(std::isnan(exp_f32(kNaN)));
  EXPECT_TRUE(std::isnan(exp_f32(std::bit_cast<float>(0x7fc00001u))));  // a payload does not leak into the exponent
}

TEST(VectorMath, LogIsWithinTwoUlpAndKeepsItsEdges) {
  ScopedFlushDenormals flush;
  const auto log_d = [](double x) { return std::log(x); };
  EXPECT_LE(worst_ulps(0.0001f, 4.0f, log_f32, log_d), 2.0);
  EXPECT_LE(worst_ulps(1.0f, 1e6f, log_f32, log_d), 2.0);
  EXPECT_LE(worst_ulps(1e30f, 3e38f, log_f32, log_d), 2.0);
  EXPECT_EQ(log_f32(1.0f), 0.0f);
  EXPECT_EQ(log_f32(0.0f), -kInf);
  EXPECT_EQ(log_f32(-0.0f), -kInf);
  EXPECT_EQ(log_f32(kInf), kInf);
  EXPECT_TRUE(std::isnan(log_f32(-1.0f)));
  EXPECT_TRUE(std::isnan(log_f32(kNaN)));
}

TEST(VectorMath, TanhAndErfAreWithinFourUlp) {
  ScopedFlushDenormals flush;
  EXPECT_LE(worst_ulps(-12.0f, 12.0f, tanh_f32, [](double x) { return std::tanh(x); }), 4.0);
  EXPECT_LE(worst_ulps(-0.01f, 0.01f, tanh_f32, [](double x) { return std::tanh(x); }), 4.0);
  EXPECT_LE(worst_ulps(-5.0f, 5.0f, erf_f32, [](double x) { return std::erf(x); }), 4.0);
  for (auto* f : {tanh_f32, erf_f32}) {
    EXPECT_EQ(f(kInf), 1.0f);
    EXPECT_EQ(f(-kInf), -1.0f);
    EXPECT_TRUE(std::isnan(f(kNaN)));
    EXPECT_TRUE(std::signbit(f(-0.0f)));
  }
}

TEST(VectorMath, ActivationsAreWithinAMillionth) {
  ScopedFlushDenormals flush;
  for (float x = -20; x <= 20; x += 0.00071f) {
    const double d = x;
    EXPECT_NEAR(sigmoid_f32(x), 1 / (1 + std::exp(-d)), 1e-6);
    EXPECT_NEAR(silu_f32(x), d / (1 + std::exp(-d)), 1e-6 * std::max(1.0, std::fabs(d)));
    EXPECT_NEAR(gelu_f32(x), 0.5 * d * std::erfc(-d / std::sqrt(2.0)), 1e-6 * std::max(1.0, std::fabs(d)));
    const double u = std::sqrt(2 / std::acos(-1.0)) * (d + 0.044715 * d * d * d);
    EXPECT_NEAR(gelu_tanh_f32(x), 0.5 * d * (1 + std::tanh(u)), 1e-6 * std::max(1.0, std::fabs(d)));
  }
  EXPECT_EQ(silu_f32(0.0f), 0.0f);
  EXPECT_EQ(sigmoid_f32(-200.0f), 0.0f);
  EXPECT_TRUE(std::isnan(relu_f32(kNaN)));
  EXPECT_FALSE(std::signbit(relu_f32(-0.0f)));
}

TEST(VectorMath, MaximumAndMinimumLetANaNWin) {
  EXPECT_TRUE(std::isnan(maximum_f32(kNaN, 1)));
  EXPECT_TRUE(std::isnan(maximum_f32(1, kNaN)));
  EXPECT_TRUE(std::isnan(minimum_f32(kNaN, 1)));
  EXPECT_TRUE(std::isnan(minimum_f32(1, kNaN)));
  EXPECT_TRUE(std::signbit(maximum_f32(0.0f, -0.0f)));
  EXPECT_FALSE(std::signbit(minimum_f32(-0.0f, 0.0f)));
  EXPECT_EQ(maximum_f32(-1, 2), 2);
  EXPECT_EQ(minimum_f32(-1, 2), -1);
}

TEST(VectorMath, Tree16AddsLanesThenHalves) {
  // 2^24 swallows a 1 added to it alone; lane 0 gets x[0] and x[16], so that 2^24 + 1 + 1 differs from 2^24 + (1 + 1).
  std::vector<float> x(33, 0.0f);
  x[0] = 16777216.0f;
  x[16] = 1;
  x[32] = 1;
  EXPECT_EQ(tree16_sum(x.data(), 33), 16777216.0f);
  x[16] = 0;
  x[32] = 0;
  x[8] = 1;   // joins lane 0 in the first halving
  x[4] = 1;   // lane 4 meets lane 12 first,
  x[12] = 1;  // so two ones arrive together
  EXPECT_EQ(tree16_sum(x.data(), 33), 16777218.0f);
}

TEST(VectorMath, RowsAgreeWithDoublePrecision) {
  ScopedFlushDenormals flush;
  for (int64_t n : {1, 2, 15, 16, 17, 576}) {
    const auto x = random_row(n, DType::kF32, 7 + n);
    const auto w = random_row(n, DType::kF32, 8 + n);
    const auto b = random_row(n, DType::kF32, 9 + n);
    double mean = 0, squares = 0, variance = 0, largest = -1e300, total = 0;
    for (float v : x)
      mean += v / static_cast<double>(n), squares += double{v} * v, largest = std::max<double>(largest, v);
    for (float v : x) variance += (v - mean) * (v - mean) / static_cast<double>(n), total += std::exp(v - largest);
    std::vector<float> rms(n), layer(n), soft(n);
    rms_norm_row(DType::kF32, x.data(), w.data(), 1e-5f, rms.data(), n);
    layer_norm_row(DType::kF32, x.data(), w.data(), b.data(), 1e-5f, layer.data(), n);
    softmax_row(DType::kF32, x.data(), soft.data(), n);
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_NEAR(rms[i], x[i] / std::sqrt(squares / static_cast<double>(n) + 1e-5) * w[i], 1e-5);
      EXPECT_NEAR(layer[i], (x[i] - mean) / std::sqrt(variance + 1e-5) * w[i] + b[i], 1e-5);
      EXPECT_NEAR(soft[i], std::exp(x[i] - largest) / total, 1e-6);
    }
  }
}

TEST(VectorMath, SixteenBitNormRoundsTwice) {
  ScopedFlushDenormals flush;
  const int64_t n = 576;
  const auto x = random_row(n, DType::kBF16, 1);
  const auto w = random_row(n, DType::kBF16, 2);
  std::vector<float> y(n), unweighted(n);
  rms_norm_row(DType::kBF16, x.data(), w.data(), 1e-6f, y.data(), n);
  rms_norm_row(DType::kBF16, x.data(), nullptr, 1e-6f, unweighted.data(), n);
  for (int64_t i = 0; i < n; ++i) EXPECT_EQ(y[i], round_to(DType::kBF16, unweighted[i] * w[i]));
}

TEST(VectorMath, RotateHalfTurnsPairs) {
  const float x[] = {1, 2, 3, 4}, c[] = {0, 1}, s[] = {1, 0};
  float y[4];
  rotate_half_row(DType::kF32, x, c, s, y, 4);
  EXPECT_EQ(y[0], -3);  // a quarter turn of (1, 3)
  EXPECT_EQ(y[2], 1);
  EXPECT_EQ(y[1], 2);  // no turn of (2, 4)
  EXPECT_EQ(y[3], 4);
}

struct AttentionCase {
  DType dtype;
  DotOrder order;
  double tolerance;
};

TEST(VectorMath, AttentionAgreesWithDoublePrecision) {
  ScopedFlushDenormals flush;
  for (const auto& [dtype, order, tolerance] :
       {AttentionCase{DType::kF32, DotOrder::kSequential, 1e-5},
        AttentionCase{DType::kF16, DotOrder::kSequential, 3e-3}, AttentionCase{DType::kBF16, DotOrder::kPair, 2e-2},
        AttentionCase{DType::kBF16, DotOrder::kTile, 2e-2}}) {
    for (int64_t d : {5, 16, 64}) {
      const int64_t length = 700;
      const auto q = random_row(d, dtype, 3);
      const auto k = random_row(length * d, dtype, 4);
      const auto v = random_row(length * d, dtype, 5);
      for (auto [lo, hi] : {std::pair<int64_t, int64_t>{0, 1}, {0, 64}, {0, 700}, {500, 530}, {65, 640}}) {
        for (float cap : {0.0f, 5.0f}) {
          const AttentionMath math{dtype, order, 0.3f, cap};
          std::vector<double> want(d, 0.0);
          double total = 0;
          for (int64_t t = lo; t < hi; ++t) {
            double s = 0;
            for (int64_t i = 0; i < d; ++i) s += double{q[i]} * k[t * d + i];
            s *= math.scale;
            if (cap > 0) s = cap * std::tanh(s / cap);
            const double p = std::exp(s);
            total += p;
            for (int64_t i = 0; i < d; ++i) want[i] += p * v[t * d + i];
          }
          std::vector<float> got(d);
          attend_reference(math, q.data(), d, k.data(), d, v.data(), d, lo, hi, got.data());
          for (int64_t i = 0; i < d; ++i) EXPECT_NEAR(got[i], want[i] / total, tolerance) << lo << ".." << hi;
        }
      }
    }
  }
}

TEST(VectorMath, AttentionWithoutVisibleKeysIsZero) {
  const float q[] = {1, 2};
  float y[] = {kNaN, kNaN};
  attend_reference({}, q, 2, nullptr, 2, nullptr, 2, 7, 7, y);
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_EQ(y[1], 0.0f);
}

TEST(VectorMath, AMaskedKeyCannotPoisonARow) {
  ScopedFlushDenormals flush;
  const int64_t d = 16, length = 128;
  const auto q = random_row(d, DType::kF16, 3);
  auto k = random_row(length * d, DType::kF16, 4);
  auto v = random_row(length * d, DType::kF16, 5);
  std::vector<float> clean(d), poisoned(d);
  const AttentionMath math{DType::kF16, DotOrder::kSequential, 0.25f, 0};
  attend_reference(math, q.data(), d, k.data(), d, v.data(), d, 10, 100, clean.data());
  for (int64_t i = 0; i < length * d; ++i) {
    if (i < 10 * d || i >= 100 * d) k[i] = v[i] = kNaN;
  }
  attend_reference(math, q.data(), d, k.data(), d, v.data(), d, 10, 100, poisoned.data());
  EXPECT_EQ(clean, poisoned);
  v[50 * d + 3] = kNaN;  // and a visible one does
  attend_reference(math, q.data(), d, k.data(), d, v.data(), d, 10, 100, poisoned.data());
  EXPECT_TRUE(std::isnan(poisoned[3]));
}

}  // namespace
}  // namespace spyre
