#include "cli/bench_mix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace spyre::cli {
namespace {

std::vector<MixedRequest> draw(const LengthMix& mix, int64_t count, uint64_t seed = 1, int64_t max_model_len = 1 << 20,
                               double rate = 0) {
  return draw_requests(mix, count, seed, 1000, max_model_len, rate);
}

// Of the logarithm: its mean is the median's, its deviation sigma; over n draws the mean is off by sigma / sqrt(n).
TEST(LengthMix, LengthsAreLogNormal) {
  const LengthMix mix{.prompt_median = 200,
                      .prompt_sigma = 0.8,
                      .output_median = 500,
                      .output_sigma = 0.3,
                      .max_prompt = 1 << 18,
                      .max_output = 1 << 18};
  const auto requests = draw(mix, 4000);
  double sum = 0, squares = 0, output_sum = 0;
  for (const MixedRequest& r : requests) {
    const double x = std::log(static_cast<double>(r.prompt_ids.size()));
    sum += x;
    squares += x * x;
    output_sum += std::log(static_cast<double>(r.output_tokens));
  }
  const double mean = sum / 4000;
  EXPECT_NEAR(mean, std::log(200.0), 5 * 0.8 / std::sqrt(4000.0));
  EXPECT_NEAR(std::sqrt(squares / 4000 - mean * mean), 0.8, 0.05);
  EXPECT_NEAR(output_sum / 4000, std::log(500.0), 5 * 0.3 / std::sqrt(4000.0));
}

TEST(LengthMix, TheDefaultsHaveTheMeansThatTheirCommentSays) {
  const LengthMix mix;
  EXPECT_NEAR(mix.prompt_median * std::exp(mix.prompt_sigma * mix.prompt_sigma / 2), 197, 1);
  EXPECT_NEAR(mix.output_median * std::exp(mix.output_sigma * mix.output_sigma / 2), 192, 1);
}

TEST(LengthMix, FollowsFromTheSeed) {
  const auto a = draw({}, 50, 7), b = draw({}, 50, 7), other = draw({}, 50, 8);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].prompt_ids, b[i].prompt_ids);
    EXPECT_EQ(a[i].output_tokens, b[i].output_tokens);
  }
  EXPECT_NE(a[0].prompt_ids, other[0].prompt_ids);
  // The engine's draws are the standard's, so these lengths are the same on every machine and with every library.
  EXPECT_EQ(a[0].prompt_ids.size(), draw({}, 1, 7)[0].prompt_ids.size());
}

TEST(LengthMix, FitsTheModelAndTheBounds) {
  const LengthMix mix{.max_prompt = 300, .max_output = 200};
  for (const int64_t max_model_len : {2, 3, 64, 250, 1000}) {
    for (const MixedRequest& r : draw(mix, 300, 3, max_model_len)) {
      const auto prompt = static_cast<int64_t>(r.prompt_ids.size());
      EXPECT_GE(prompt, 1);
      EXPECT_GE(r.output_tokens, 1);
      EXPECT_LE(prompt, 300);
      EXPECT_LE(r.output_tokens, 200);
      EXPECT_LE(prompt + r.output_tokens, max_model_len);
      for (const int32_t id : r.prompt_ids) {
        EXPECT_GE(id, 16);
        EXPECT_LT(id, 1000);
      }
    }
  }
  for (const MixedRequest& r : draw_requests({}, 20, 1, 5, 100, 0)) {
    for (const int32_t id : r.prompt_ids) EXPECT_LT(id, 5);
  }
}

TEST(LengthMix, ArrivalsArePoisson) {
  const auto requests = draw({}, 4000, 1, 4096, 20);
  EXPECT_GT(requests.front().at, 0);
  EXPECT_TRUE(std::is_sorted(requests.begin(), requests.end(),
                             [](const MixedRequest& a, const MixedRequest& b) { return a.at < b.at; }));
  // The mean gap is 1/20 s, and its deviation as large: over n gaps the mean is off by 1/20/sqrt(n).
  EXPECT_NEAR(requests.back().at / 4000, 0.05, 5 * 0.05 / std::sqrt(4000.0));
  EXPECT_EQ(draw({}, 10).back().at, 0);
}

TEST(LengthMix, RefusesWhatIsOutOfRange) {
  EXPECT_THROW(draw({.prompt_median = 0}, 1), Error);
  EXPECT_THROW(draw({.output_median = std::nan("")}, 1), Error);
  EXPECT_THROW(draw({.prompt_sigma = -1}, 1), Error);
  EXPECT_THROW(draw({.output_sigma = 6}, 1), Error);
  EXPECT_THROW(draw({.max_prompt = 0}, 1), Error);
  EXPECT_THROW(draw({}, 0), Error);
  EXPECT_THROW(draw({}, 1, 1, 1), Error);
  EXPECT_THROW(draw({}, 1, 1, 100, -1), Error);
}

}  // namespace
}  // namespace spyre::cli
