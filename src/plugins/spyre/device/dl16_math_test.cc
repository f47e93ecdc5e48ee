// The card's arithmetic against plain references in double and against sums written out by hand.
#include "plugins/spyre/device/dl16_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "base/cpu.h"

namespace spyre::device {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<int64_t> dense(int64_t n) {
  std::vector<int64_t> card(static_cast<size_t>(n));
  std::iota(card.begin(), card.end(), 0);
  return card;
}

std::vector<float> random_values(uint32_t seed, int64_t n, double deviation = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(0, deviation);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& x : values) x = round_to_dl16(static_cast<float>(normal(engine)));
  return values;
}

// One product of a row and a column.
float product(const Dl16Settings& settings, const std::vector<float>& x, const std::vector<float>& w,
              const std::vector<int64_t>& card, int64_t per_core) {
  float y = 0;
  Dl16Math(settings).matmul({.rows = 1,
                             .k = std::ssize(x),
                             .n = 1,
                             .x = x.data(),
                             .w = w.data(),
                             .k_stride = 1,
                             .n_stride = 1,
                             .out = &y,
                             .k_card = card,
                             .k_per_core = per_core});
  return y;
}

TEST(Dl16Math, ExpHasAFloorUnlessItIsGuarded) {
  const Dl16Math guarded({}), bare({.exp_guard = false}), none({.exp_floor = 0, .exp_guard = false});
  EXPECT_EQ(guarded.exp(-kInf), 0);
  EXPECT_EQ(guarded.exp(-18), 0);
  EXPECT_EQ(bare.exp(-kInf), 0x1p-24f);
  EXPECT_EQ(bare.exp(-18), 0x1p-24f);
  EXPECT_EQ(guarded.exp(-17), 0x1p-24f);  // e^-17 is 4.1e-8
  EXPECT_EQ(none.exp(-kInf), 0);
  EXPECT_EQ(guarded.exp(0), 1);
  EXPECT_EQ(guarded.exp_fp32(-12), 0x1p-17f);
  EXPECT_EQ(guarded.exp_fp32(-kInf), 0);
  EXPECT_EQ(bare.exp_fp32(-kInf), 0x1p-17f);
  for (float x = -16; x < 16; x += 0.125f) {
    EXPECT_NEAR(guarded.exp(x) / std::exp(static_cast<double>(x)), 1, 1.0 / 1024 + 1e-6) << x;
  }
}

TEST(Dl16Math, ConstantsAreDl16) {
  EXPECT_EQ(Dl16Math({}).constant(0.1), round_to_dl16(0.1f));
  EXPECT_EQ(Dl16Math({}).constant(1e30), dl16_to_f32(0x7ffe));
}

// e = 2^-11 is less than half of the last bit of 1: kept in fp32, lost in DL16 one by one, kept in part by chunks.
TEST(Dl16Math, AccumulationIsAParameter) {
  std::vector<float> x(9, 0x1p-11f);
  x[0] = 1;
  const std::vector<float> ones(9, 1.0f);
  const std::vector<int64_t> card = dense(9);
  EXPECT_EQ(product({}, x, ones, card, 64), 1 + 0x1p-8f);
  EXPECT_EQ(product({.accumulate_chunk = 16}, x, ones, card, 64), 1);
  EXPECT_EQ(product({.accumulate_chunk = 4}, x, ones, card, 64), 1 + 0x1p-9f);
  EXPECT_EQ(Dl16Math({}).sum(x), 1 + 0x1p-8f);
  EXPECT_EQ(Dl16Math({.accumulate_chunk = 16}).sum(x), 1);
  EXPECT_EQ(Dl16Math({.accumulate_chunk = 4}).sum(x), 1 + 0x1p-9f);
  EXPECT_EQ(Dl16Math({.accumulate_chunk = 4}).dot(x, ones.data()), 1 + 0x1p-9f);
}

// A chunk is so many places on the card, of which some are padding.
TEST(Dl16Math, PaddingTakesPlacesOfAChunk) {
  const std::vector<float> x{1, 0x1p-11f, 0x1p-11f, 0x1p-11f, 0x1p-11f}, ones(5, 1.0f);
  const Dl16Settings chunks{.accumulate_chunk = 4};
  EXPECT_EQ(product(chunks, x, ones, dense(5), 64), 1);                   // 1 e e e | e
  EXPECT_EQ(product(chunks, x, ones, {0, 4, 5, 6, 7}, 64), 1 + 0x1p-9f);  // 1 - - - | e e e e
}

// 2^26 - 2^26 with ones in between: what survives says which additions were made.
TEST(Dl16Math, CoresAddTheirPartsInRingOrder) {
  const std::vector<float> x{0x1p26f, 1, 1, -0x1p26f, 1, 1}, ones(6, 1.0f);
  const std::vector<int64_t> card = dense(6);
  EXPECT_EQ(product({}, x, ones, card, 6), 2);  // the ones between the two are lost
  EXPECT_EQ(product({}, x, ones, card, 3), 0);  // so are those behind -2^26
  EXPECT_EQ(product({}, x, ones, card, 2), 2);  // the last two are a part of their own
}

TEST(Dl16Math, MatmulIsTheSameForEveryColumn) {
  const int64_t rows = 3, k = 70, n = 130;
  const std::vector<float> x = random_values(1, rows * k), w = random_values(2, k * n);
  for (const Dl16Ties ties : {Dl16Ties::kAway, Dl16Ties::kEven, Dl16Ties::kZero, Dl16Ties::kOdd}) {
    for (const int64_t chunk : {0, 16}) {
      const Dl16Settings settings{.rules = {.ties = ties}, .accumulate_chunk = chunk};
      std::vector<float> y(static_cast<size_t>(rows * n));
      const std::vector<int64_t> card = dense(k);
      Dl16Math(settings).matmul({.rows = rows,
                                 .k = k,
                                 .n = n,
                                 .x = x.data(),
                                 .w = w.data(),
                                 .k_stride = n,
                                 .n_stride = 1,
                                 .out = y.data(),
                                 .k_card = card,
                                 .k_per_core = 64});
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t column = 0; column < n; ++column) {
          // By the definition: products added one by one, rounded where the settings say.
          float total = 0;
          for (int64_t first = 0; first < k; first += 64) {
            float partial = 0, of_chunk = 0;
            for (int64_t i = first; i < std::min(k, first + 64); ++i) {
              const float term = x[row * k + i] * w[i * n + column];
              if (chunk == 0) {
                partial += term;
                continue;
              }
              of_chunk = round_to_dl16(of_chunk + term, settings.rules);
              if ((i + 1) % chunk == 0 || i + 1 == k) {
                partial = round_to_dl16(partial + of_chunk, settings.rules);
                of_chunk = 0;
              }
            }
            total = chunk == 0 ? total + partial : round_to_dl16(total + partial, settings.rules);
          }
          ASSERT_EQ(y[row * n + column], round_to_dl16(total, settings.rules)) << row << " " << column;
        }
      }
    }
  }
}

TEST(Dl16Math, SoftmaxIsRoundedFunctionByFunction) {
  const std::vector<float> x = random_values(3, 100, 3);
  std::vector<float> y(x.size());
  Dl16Math({}).softmax(x, y);
  double sum = 0, largest = -kInf;
  for (const float v : x) largest = std::max<double>(largest, v);
  for (const float v : x) sum += std::exp(v - largest);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    worst = std::max(worst, std::fabs(y[i] / (std::exp(x[i] - largest) / sum) - 1));
    EXPECT_EQ(y[i], round_to_dl16(y[i]));
  }
  // The difference x - max has half a unit of 2^-9 relative, up to 2^-6 absolute at -8 .. -16, which exp makes
  // relative.
  EXPECT_LT(worst, 0.03);
  EXPECT_GT(worst, 1.0 / 1024);  // more than one rounding
}

// A masked key keeps what exp leaves of it.
TEST(Dl16Math, SoftmaxLeaksWithoutTheGuard) {
  const std::vector<float> x{1, -kInf, 1, -kInf};
  std::vector<float> y(4);
  Dl16Math({.exp_floor = 3e-5f, .exp_guard = false}).softmax(x, y);
  EXPECT_NEAR(y[1], 1.5e-5, 1e-6);
  Dl16Math({}).softmax(x, y);
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[0], 0.5f);
}

TEST(Dl16Math, NormsAreWithinSomeHundredths) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const std::vector<float> x = random_values(seed, 576, 0.7), w = random_values(seed + 50, 576),
                             b = random_values(seed + 90, 576);
    std::vector<float> rms(x.size()), layer(x.size());
    const Dl16Math math({});
    math.rms_norm(x, w, 1e-5f, rms);
    math.layer_norm(x, w, b, 1e-5f, layer);
    double squares = 0, mean = 0, variance = 0;
    for (const float v : x) squares += static_cast<double>(v) * v / 576, mean += v / 576.0;
    for (const float v : x) variance += (v - mean) * (v - mean) / 576;
    for (size_t i = 0; i < x.size(); ++i) {
      const double of_rms = x[i] / std::sqrt(squares + 1e-5) * w[i];
      const double of_layer = (x[i] - mean) / std::sqrt(variance + 1e-5) * w[i];
      ASSERT_NEAR(rms[i], of_rms, 0.005 * std::fabs(of_rms) + 1e-6);
      ASSERT_NEAR(layer[i], of_layer + b[i], 0.01 * (std::fabs(of_layer) + std::fabs(b[i])) + 1e-3);
    }
  }
}

// Two rounded moments of numbers that differ little from their mean: the variance is lost.
TEST(Dl16Math, LayerNormLosesASmallVariance) {
  std::vector<float> x(64), ones(64, 1.0f), zeros(64, 0.0f), y(64);
  for (size_t i = 0; i < 64; ++i) x[i] = i % 2 == 0 ? 100.0f : 100.25f;
  Dl16Math({}).layer_norm(x, ones, zeros, 1e-5f, y);
  EXPECT_GT(std::fabs(std::fabs(y[0]) - 1), 0.05);
}

TEST(Dl16Math, GeluTanh) {
  const Dl16Math math({});
  for (float x = -6; x <= 6; x += 0.0625f) {
    const double v = x, exact = v / 2 * (1 + std::tanh(0.7978845608 * (v + 0.044715 * v * v * v)));
    EXPECT_NEAR(math.gelu_tanh(x), exact, 0.004 * std::fabs(v) + 1e-4) << x;
  }
}

TEST(Dl16Math, MomentsOfExx2) {
  const std::vector<float> x{1, 2, 3, 4};
  const Dl16Math::Moments m = Dl16Math({}).exx2(x);
  EXPECT_EQ(m.mean, 2.5f);
  EXPECT_EQ(m.mean_of_squares, 7.5f);
}

}  // namespace
}  // namespace spyre::device
