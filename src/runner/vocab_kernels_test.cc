#include "runner/vocab_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "base/vector_math.h"

namespace spyre::runner {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Machine {
  const char* name;
  CpuLevel level;
};

class VocabKernelsTest : public ::testing::TestWithParam<Machine> {
 protected:
  void SetUp() override {
    const CpuFeatures machine = CpuFeatures::detected();
    if (machine.capped(GetParam().level) != CpuFeatures::of(GetParam().level)) GTEST_SKIP() << "not on this machine";
    kernels = &vocab_kernels(CpuFeatures::of(GetParam().level));
  }
  const VocabKernels* kernels = nullptr;
};

std::vector<float> row(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 6);
  std::vector<float> x(n + 3, kNan);  // what lies past the row must not be read
  for (int64_t i = 0; i < n; ++i) x[i] = random() % 50 == 0 ? -kInf : normal(random);
  return x;
}

const int64_t kSizes[] = {1, 3, 15, 16, 17, 63, 64, 65, 100, 127, 128, 1000, 4099};

TEST_P(VocabKernelsTest, MaximaAreThoseOfTheBlocks) {
  for (const int64_t n : kSizes) {
    const std::vector<float> x = row(n, static_cast<uint32_t>(n));
    std::vector<float> got(vocab_blocks(n));
    ASSERT_TRUE(kernels->maxima(x.data(), n, got.data())) << n;
    for (int64_t b = 0; b < std::ssize(got); ++b) {
      EXPECT_EQ(got[b], *std::max_element(&x[b * 64], &x[0] + std::min(n, b * 64 + 64))) << n << " block " << b;
    }
  }
}

TEST_P(VocabKernelsTest, MaximaFindEveryNonFiniteElement) {
  for (const int64_t n : {1, 40, 64, 130}) {
    std::vector<float> x = row(n, 5);
    std::vector<float> got(vocab_blocks(n));
    for (int64_t t = 0; t < n; ++t) {
      for (const float bad : {kNan, -kNan, kInf}) {
        const float old = std::exchange(x[t], bad);
        EXPECT_FALSE(kernels->maxima(x.data(), n, got.data())) << n << " at " << t << ": " << bad;
        x[t] = old;
      }
    }
  }
}

TEST_P(VocabKernelsTest, WeightsAndMassesHaveTheBitsOfTheDefinition) {
  for (const int64_t n : kSizes) {
    const std::vector<float> x = row(n, static_cast<uint32_t>(n) + 1);
    const float highest = *std::max_element(x.begin(), x.begin() + n);
    if (highest == -kInf) continue;
    for (const float inverse : {1.0f, 0.3f, 40.0f, 1e-30f}) {
      std::vector<float> weights(vocab_blocks(n) * 64, kNan), mass(vocab_blocks(n), kNan),
          mass_alone(vocab_blocks(n), kNan);
      kernels->weigh(x.data(), n, highest, inverse, weights.data(), mass.data());
      kernels->weigh(x.data(), n, highest, inverse, nullptr, mass_alone.data());
      for (int64_t b = 0; b < vocab_blocks(n); ++b) {
        float block[64] = {};
        for (int64_t t = b * 64; t < std::min(n, b * 64 + 64); ++t) {
          block[t % 64] = exp_f32((x[t] - highest) * inverse);
          ASSERT_EQ(std::bit_cast<uint32_t>(weights[t]), std::bit_cast<uint32_t>(block[t % 64])) << n << " at " << t;
        }
        for (int64_t i = 0; i < 64; ++i) ASSERT_EQ(weights[b * 64 + i], block[i]) << n << " at " << b * 64 + i;
        ASSERT_EQ(mass[b], tree16_sum(block, 64)) << n << " block " << b;
        ASSERT_EQ(mass_alone[b], mass[b]);
      }
    }
  }
}

TEST_P(VocabKernelsTest, SelectListsWhatLiesBetween) {
  for (const int64_t n : kSizes) {
    std::vector<float> x = row(n, static_cast<uint32_t>(n) + 4);
    for (int64_t t = 0; t < n; t += 5) x[t] = 1.25f;
    std::vector<float> maxima(vocab_blocks(n));
    kernels->maxima(x.data(), n, maxima.data());
    for (const auto& [least, below] :
         {std::pair{1.25f, kInf}, {-3.0f, 1.25f}, {std::numeric_limits<float>::lowest(), kInf}, {5.0f, 5.0f}}) {
      std::vector<int32_t> expected, got(n + 1);
      for (int64_t t = 0; t < n; ++t) {
        if (x[t] >= least && x[t] < below) expected.push_back(static_cast<int32_t>(t));
      }
      got.resize(kernels->select(x.data(), n, maxima.data(), least, below, got.data()));
      EXPECT_EQ(got, expected) << n << " between " << least << " and " << below;
    }
  }
}

TEST_P(VocabKernelsTest, TailAndCutKeepWhatRanksBefore) {
  for (const int64_t n : kSizes) {
    std::vector<float> x = row(n, static_cast<uint32_t>(n) + 3);
    for (int64_t t = 0; t < n; t += 3) x[t] = 1.25f;  // ties
    const int64_t blocks = vocab_blocks(n);
    std::vector<float> maxima(blocks), weights(blocks * 64), mass(blocks);
    kernels->maxima(x.data(), n, maxima.data());
    const float highest = *std::max_element(maxima.begin(), maxima.end());
    kernels->weigh(x.data(), n, highest, 0.5f, weights.data(), mass.data());
    for (const int64_t token : {int64_t{0}, n / 6 * 3, n / 2, n - 1}) {
      const float least = x[token];
      if (least == -kInf) continue;
      std::vector<float> cut = weights, cut_mass(blocks, kNan);
      kernels->cut(x.data(), n, maxima.data(), least, token, cut.data(), cut_mass.data());
      VocabTail expected;
      for (int64_t b = 0; b < blocks; ++b) {
        float from[64] = {}, kept[64] = {};
        for (int64_t t = b * 64; t < std::min(n, b * 64 + 64); ++t) {
          if (x[t] >= least) from[t % 64] = weights[t];
          expected.count += x[t] >= least;
          if (x[t] > least || (x[t] == least && t <= token)) kept[t % 64] = weights[t];
        }
        if (maxima[b] >= least) expected.mass += tree16_sum(from, 64);
        ASSERT_EQ(cut_mass[b], tree16_sum(kept, 64)) << n << " block " << b;
        if (cut_mass[b] == 0) continue;
        for (int64_t i = 0; i < 64; ++i) ASSERT_EQ(cut[b * 64 + i], kept[i]) << n << " at " << b * 64 + i;
      }
      const VocabTail got = kernels->tail(x.data(), n, maxima.data(), weights.data(), least);
      EXPECT_EQ(got.mass, expected.mass) << n;
      EXPECT_EQ(got.count, expected.count) << n;
    }
  }
}

TEST_P(VocabKernelsTest, RankCountsWhatStandsBefore) {
  for (const int64_t n : kSizes) {
    std::vector<float> x = row(n, static_cast<uint32_t>(n) + 2);
    for (int64_t t = 0; t < n; t += 3) x[t] = 0.25f;  // ties
    std::vector<float> maxima(vocab_blocks(n));
    kernels->maxima(x.data(), n, maxima.data());
    for (const int64_t token : {int64_t{0}, n / 2, n - 1}) {
      int64_t expected = 0;
      for (int64_t t = 0; t < n; ++t) expected += x[t] > x[token] || (x[t] == x[token] && t < token);
      EXPECT_EQ(kernels->rank(x.data(), n, maxima.data(), x[token], token), expected) << n << " token " << token;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, VocabKernelsTest,
                         ::testing::Values(Machine{"portable", CpuLevel::kPortable}, Machine{"avx2", CpuLevel::kAvx2},
                                           Machine{"avx512", CpuLevel::kAvx512}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace spyre::runner
