#include "runner/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "base/error.h"

namespace spyre::runner {
namespace {

using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

RequestState request(const SamplingParams& params, const std::string& id = "r", int64_t draws = 0) {
  RequestState state;
  state.id = id;
  state.sampling = params;
  state.draws = draws;
  return state;
}

std::vector<float> random_logits(int64_t n, uint32_t seed, float spread = 2.0f) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> logits(n);
  for (float& x : logits) x = normal(engine);
  return logits;
}

template <typename Function>
std::string error_text(Function&& function, ErrorCode code = ErrorCode::kInvalidArgument) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

// The probability of each token by the definitions, in double and with full sorts.
std::vector<double> naive_probabilities(const std::vector<float>& logits, const SamplingParams& params,
                                        const std::vector<bool>& allowed) {
  const int64_t n = std::ssize(logits);
  std::vector<int64_t> ids;
  for (int64_t t = 0; t < n; ++t) {
    if (allowed[t] && std::isfinite(logits[t])) ids.push_back(t);
  }
  std::stable_sort(ids.begin(), ids.end(), [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
  std::vector<double> p(n, 0.0);
  const double top = logits[ids[0]];
  for (const int64_t t : ids) p[t] = std::exp((logits[t] - top) / params.temperature);
  std::erase_if(ids, [&](int64_t t) { return p[t] < params.min_p; });
  if (params.top_k > 0 && params.top_k < std::ssize(ids)) {
    const float kth = logits[ids[params.top_k - 1]];
    std::erase_if(ids, [&](int64_t t) { return logits[t] < kth; });
  }
  double mass = 0;
  for (const int64_t t : ids) mass += p[t];
  double before = 0;
  std::vector<double> result(n, 0.0);
  double kept = 0;
  for (const int64_t t : ids) {
    if (params.top_p < 1 && before / mass >= params.top_p) break;
    before += p[t];
    kept += p[t];
    result[t] = p[t];
  }
  for (double& x : result) x /= kept;
  return result;
}

// Draws many times and compares the counts with |expected|: no token of probability 0, and chi-square in bounds.
void expect_distribution(const std::vector<float>& logits, SamplingParams params, const std::vector<double>& expected,
                         std::span<const uint32_t> mask = {}) {
  constexpr int kDraws = 20000;
  Sampler sampler;
  RequestState state = request(params);
  std::vector<int> counts(logits.size(), 0);
  for (int i = 0; i < kDraws; ++i, ++state.draws) ++counts[sampler.sample(state, logits, mask)];
  double chi = 0;
  int cells = 0;
  for (size_t t = 0; t < counts.size(); ++t) {
    const double want = expected[t] * kDraws;
    if (expected[t] == 0) {
      ASSERT_EQ(counts[t], 0) << "token " << t << " is filtered out";
    }
    if (want < 5) continue;  // too rare for the test's approximation
    chi += (counts[t] - want) * (counts[t] - want) / want;
    ++cells;
  }
  ASSERT_GE(cells, 1);
  // Wilson-Hilferty: the 1 - 1e-6 quantile of chi-square.
  const double df = cells, z = 4.75, a = 2.0 / (9 * df);
  EXPECT_LT(chi, df * std::pow(1 - a + z * std::sqrt(a), 3)) << cells << " cells";
}

struct FilterCase {
  const char* name;
  double temperature = 1, top_p = 1, min_p = 0;
  int64_t top_k = 0;
};

class Filters : public ::testing::TestWithParam<FilterCase> {};

TEST_P(Filters, MatchTheDefinitions) {
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    std::vector<float> logits = random_logits(24, seed, 1.5f);
    logits[5] = logits[11] = logits[17];  // ties
    logits[3] = -kInf;
    const SamplingParams params{.temperature = GetParam().temperature,
                                .top_p = GetParam().top_p,
                                .top_k = GetParam().top_k,
                                .min_p = GetParam().min_p,
                                .seed = seed};
    expect_distribution(logits, params, naive_probabilities(logits, params, std::vector<bool>(24, true)));

    std::vector<bool> allowed(24, false);
    uint32_t mask = 0;
    for (const int t : {1, 3, 5, 8, 11, 13, 17, 20, 23}) {
      allowed[t] = true;
      mask |= 1u << t;
    }
    expect_distribution(logits, params, naive_probabilities(logits, params, allowed), std::span(&mask, 1));
  }
}

INSTANTIATE_TEST_SUITE_P(Sampler, Filters,
                         ::testing::Values(FilterCase{"plain"}, FilterCase{"cold", 0.3}, FilterCase{"hot", 3.0},
                                           FilterCase{"top_p", 1, 0.7}, FilterCase{"top_p_tiny", 1, 1e-9},
                                           FilterCase{"min_p", 1, 1, 0.1}, FilterCase{"min_p_one", 1, 1, 1},
                                           FilterCase{"top_k", 1, 1, 0, 5}, FilterCase{"top_k_one", 1, 1, 0, 1},
                                           FilterCase{"top_k_all", 1, 1, 0, 1000},
                                           FilterCase{"top_k_minus_one", 1, 1, 0, -1},
                                           FilterCase{"k_and_p", 0.8, 0.6, 0, 6},
                                           FilterCase{"all_three", 1.3, 0.8, 0.05, 9}),
                         [](const auto& info) { return info.param.name; });

// The sets that survive, on a vocabulary large enough for the piecewise sort and the selections to matter.
TEST(Sampler, SupportOnALargeVocabularyIsTheNaiveOne) {
  constexpr int64_t kVocab = 3001;
  const std::vector<float> logits = random_logits(kVocab, 11, 1.0f);
  for (const auto& [top_k, top_p] : std::vector<std::pair<int64_t, double>>{{0, 0.05}, {0, 0.2}, {40, 1}, {200, 0.3}}) {
    const SamplingParams params{.top_p = top_p, .top_k = top_k, .seed = 3};
    const std::vector<double> p = naive_probabilities(logits, params, std::vector<bool>(kVocab, true));
    const int64_t support = std::count_if(p.begin(), p.end(), [](double x) { return x > 0; });
    Sampler sampler;
    RequestState state = request(params);
    std::vector<bool> seen(kVocab, false);
    for (; state.draws < 400 * support; ++state.draws) {
      const int32_t token = sampler.sample(state, logits, {});
      ASSERT_GT(p[token], 0) << token;
      seen[token] = true;
      if (state.draws > 40 * support && std::count(seen.begin(), seen.end(), true) == support) break;
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), true), support) << "top_k " << top_k << " top_p " << top_p;
  }
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  Sampler sampler;
  const SamplingParams greedy{.temperature = 0};
  EXPECT_EQ(sampler.sample(request(greedy), std::vector<float>{1, 3, 2, 3, 3}, {}), 1);
  EXPECT_EQ(sampler.sample(request(greedy), std::vector<float>{-5}, {}), 0);
  const std::vector<uint32_t> mask = {0b11100};
  EXPECT_EQ(sampler.sample(request(greedy), std::vector<float>{1, 3, 2, 3, 3}, mask), 3);
  EXPECT_EQ(sampler.sample(request({.temperature = 9e-6}), std::vector<float>{1, 1.0001f, 1}, {}), 1);
}

TEST(Sampler, FiltersOfAGreedyRequestDoNotMatter) {
  Sampler sampler;
  const std::vector<float> logits = random_logits(100, 5);
  const int32_t best = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  EXPECT_EQ(sampler.sample(request({.temperature = 0, .top_p = 0.1, .top_k = 3, .min_p = 0.5}), logits, {}), best);
}

TEST(Sampler, MaskBitsReachEveryWord) {
  Sampler sampler;
  const std::vector<float> logits = random_logits(75, 9);
  for (int32_t t = 0; t < 75; ++t) {
    std::vector<uint32_t> mask(3, 0);
    mask[t / 32] = 1u << (t % 32);
    mask[2] |= 1u << 31;  // past the vocabulary
    EXPECT_EQ(sampler.sample(request({.temperature = 0}), logits, mask), t);
    EXPECT_EQ(sampler.sample(request({.temperature = 1}), logits, mask), t);
  }
}

TEST(Sampler, RefusesARowThatAllowsNothing) {
  Sampler sampler;
  const std::vector<float> logits = {1, 2, -kInf};
  for (const double temperature : {0.0, 1.0}) {
    const RequestState state = request({.temperature = temperature});
    EXPECT_THAT(error_text([&] { sampler.sample(state, logits, std::vector<uint32_t>{0}); }),
                HasSubstr("grammar mask"));
    EXPECT_THAT(error_text([&] { sampler.sample(state, logits, std::vector<uint32_t>{0b1000}); }),
                HasSubstr("grammar"));
    EXPECT_THAT(error_text([&] { sampler.sample(state, logits, std::vector<uint32_t>{0b100}); }), HasSubstr("grammar"));
    EXPECT_THAT(error_text([&] { sampler.sample(state, std::vector<float>{-kInf, -kInf}, {}); }),
                HasSubstr("every logit is -inf"));
  }
  EXPECT_THAT(error_text([&] { sampler.sample(request({}), random_logits(33, 1), std::vector<uint32_t>{~0u}); }),
              HasSubstr("1 words is shorter than the vocabulary of 33"));
}

TEST(Sampler, RefusesNonFiniteRows) {
  Sampler sampler;
  for (const double temperature : {0.0, 1.0}) {
    for (const float bad : {kNan, kInf, -kNan}) {
      for (size_t at : {size_t{0}, size_t{40}, size_t{99}}) {
        std::vector<float> logits = random_logits(100, 2);
        logits[at] = bad;
        const std::string text = error_text([&] { sampler.sample(request({.temperature = temperature}), logits, {}); },
                                            ErrorCode::kUnsupported);
        EXPECT_THAT(text, HasSubstr("at token " + std::to_string(at)));
      }
    }
  }
}

TEST(Sampler, ExtremeLogitsAndTemperaturesStayFinite) {
  Sampler sampler;
  const std::vector<float> logits = {-3e38f, 3e38f, 0};
  for (const double temperature : {1e-5, 1.0, 1e30, 1e300}) {
    const int32_t token = sampler.sample(request({.temperature = temperature, .seed = 1}), logits, {});
    EXPECT_GE(token, 0);
    EXPECT_LT(token, 3);
  }
  EXPECT_EQ(sampler.sample(request({.temperature = 1e-5}), logits, {}), 1);
}

std::vector<int32_t> draw(Sampler& sampler, const SamplingParams& params, const std::string& id, int count) {
  std::vector<int32_t> tokens;
  RequestState state = request(params, id);
  for (; state.draws < count; ++state.draws) tokens.push_back(sampler.sample(state, random_logits(500, 77), {}));
  return tokens;
}

TEST(Sampler, ASeededRequestIsTheSameUnderAnyIdAndSampler) {
  Sampler a(1), b(2);
  const SamplingParams params{.temperature = 1.5, .seed = 1234};
  const std::vector<int32_t> tokens = draw(a, params, "x", 30);
  EXPECT_EQ(draw(b, params, "y", 30), tokens);
  EXPECT_NE(draw(a, {.temperature = 1.5, .seed = 1235}, "x", 30), tokens);
}

TEST(Sampler, AnUnseededRequestDependsOnIdAndDefaultSeed) {
  Sampler a(1), again(1), b(2);
  const SamplingParams params{.temperature = 1.5};
  const std::vector<int32_t> tokens = draw(a, params, "x", 30);
  EXPECT_EQ(draw(again, params, "x", 30), tokens);
  EXPECT_NE(draw(a, params, "y", 30), tokens);
  EXPECT_NE(draw(b, params, "x", 30), tokens);
}

TEST(TokenLogprob, EqualsTheNaiveForm) {
  for (const int64_t vocab : {1, 2, 7, 1000}) {
    const std::vector<float> logits = random_logits(vocab, static_cast<uint32_t>(vocab), 4.0f);
    double sum = 0;
    for (const float x : logits) sum += std::exp(static_cast<double>(x));
    std::vector<int32_t> order(vocab);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    for (const int32_t top : {-1, 0, 1, 5, static_cast<int32_t>(vocab)}) {
      const int64_t rank = vocab / 2;
      const TokenLogprob got = token_logprob(logits, order[rank], top);
      EXPECT_EQ(got.token, order[rank]);
      EXPECT_EQ(got.rank, rank + 1);
      EXPECT_NEAR(got.logprob, logits[order[rank]] - std::log(sum), 1e-5);
      const size_t count = top < 0 ? vocab : std::min<int64_t>(top, vocab);
      ASSERT_EQ(got.top.size(), count);
      for (size_t i = 0; i < count; ++i) {
        EXPECT_EQ(got.top[i].first, order[i]);
        EXPECT_NEAR(got.top[i].second, logits[order[i]] - std::log(sum), 1e-5);
      }
    }
  }
}

TEST(TokenLogprob, RankAndTopShareTheOrderOfTies) {
  const std::vector<float> logits = {1, 2, 2, 0, 2};
  EXPECT_EQ(token_logprob(logits, 1, 0).rank, 1);
  EXPECT_EQ(token_logprob(logits, 2, 0).rank, 2);
  EXPECT_EQ(token_logprob(logits, 4, 0).rank, 3);
  const TokenLogprob all = token_logprob(logits, 0, -1);
  EXPECT_EQ(all.rank, 4);
  std::vector<int32_t> ids;
  for (const auto& [id, logprob] : all.top) ids.push_back(id);
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 2, 4, 0, 3}));
}

TEST(TokenLogprob, ZerosOfEitherSignTie) {
  const TokenLogprob all = token_logprob(std::vector<float>{-1e-40f, 0.0f, -0.0f, 0.0f, 1e-40f, -1}, 2, -1);
  EXPECT_EQ(all.rank, 3);
  std::vector<int32_t> ids;
  for (const auto& [id, logprob] : all.top) ids.push_back(id);
  EXPECT_EQ(ids, (std::vector<int32_t>{4, 1, 2, 3, 0, 5}));
}

TEST(TokenLogprob, LargeLogitsAreStable) {
  const TokenLogprob got = token_logprob(std::vector<float>{3e38f, 3e38f, -3e38f, -kInf}, 1, -1);
  EXPECT_NEAR(got.logprob, -std::log(2.0), 1e-6);
  EXPECT_EQ(got.top[2].second, -kInf);
  EXPECT_EQ(got.top[3].second, -kInf);
}

TEST(Validate, TakesTheDefaultsAndTheEdges) {
  EXPECT_NO_THROW(validate({}, 10));
  EXPECT_NO_THROW(validate({.temperature = 0,
                            .top_p = 1e-12,
                            .top_k = -1,
                            .min_p = 1,
                            .max_tokens = 0,
                            .logprobs = -1,
                            .prompt_logprobs = 10,
                            .stop_token_ids = {0, 9}},
                           10));
}

TEST(Validate, NamesTheFieldAndTheValue) {
  const double nan = std::nan("");
  const auto text = [](const SamplingParams& params) { return error_text([&] { validate(params, 10); }); };
  EXPECT_THAT(text({.temperature = nan}), HasSubstr("temperature is nan"));
  EXPECT_THAT(text({.temperature = -0.5}), HasSubstr("temperature is -0.5"));
  EXPECT_THAT(text({.temperature = HUGE_VAL}), HasSubstr("temperature is inf"));
  EXPECT_THAT(text({.top_p = 0}), HasSubstr("top_p is 0"));
  EXPECT_THAT(text({.top_p = 1.01}), HasSubstr("top_p is 1.01"));
  EXPECT_THAT(text({.top_p = nan}), HasSubstr("top_p is nan"));
  EXPECT_THAT(text({.top_k = -2}), HasSubstr("top_k is -2"));
  EXPECT_THAT(text({.min_p = -0.1}), HasSubstr("min_p is -0.1"));
  EXPECT_THAT(text({.min_p = nan}), HasSubstr("min_p is nan"));
  EXPECT_THAT(text({.max_tokens = -1}), HasSubstr("max_tokens is -1"));
  EXPECT_THAT(text({.logprobs = -2}), HasSubstr("logprobs is -2"));
  EXPECT_THAT(text({.logprobs = 11}), HasSubstr("vocabulary size 10"));
  EXPECT_THAT(text({.prompt_logprobs = -7}), HasSubstr("prompt_logprobs is -7"));
  EXPECT_THAT(text({.stop_token_ids = {3, 10}}), HasSubstr("stop token id 10"));
  EXPECT_THAT(text({.stop_token_ids = {-1}}), HasSubstr("stop token id -1"));
}

}  // namespace
}  // namespace spyre::runner
