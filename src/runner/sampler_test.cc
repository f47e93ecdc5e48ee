#include "runner/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <set>

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

// A request with a history, whose parameters may ask for edits.
RequestState request_after(const SamplingParams& params, std::vector<int32_t> prompt,
                           const std::vector<int32_t>& output, int64_t vocab_size) {
  validate(params, vocab_size);
  RequestState state = request(params);
  state.edits = LogitsEdits(params, prompt, output, vocab_size);
  state.prompt_length = std::ssize(prompt);
  state.tokens = std::move(prompt);
  state.tokens.insert(state.tokens.end(), output.begin(), output.end());
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
  struct Case {
    int64_t top_k = 0;
    double top_p = 1, min_p = 0;
  };
  for (const auto& [top_k, top_p, min_p] : {Case{0, 0.05}, Case{0, 0.2}, Case{0, 0.9}, Case{40, 1}, Case{200, 0.3},
                                            Case{0, 1, 0.3}, Case{0, 0.5, 0.2}, Case{5, 1, 0.6}}) {
    const SamplingParams params{.top_p = top_p, .top_k = top_k, .min_p = min_p, .seed = 3};
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
    EXPECT_EQ(std::count(seen.begin(), seen.end(), true), support)
        << "top_k " << top_k << " top_p " << top_p << " min_p " << min_p;
  }
}

// The whole row is drawn from by blocks: every token must still have its own chance.
TEST(Sampler, TheWholeRowIsDrawnByItsWeights) {
  constexpr int64_t kVocab = 200;
  std::vector<float> logits = random_logits(kVocab, 21, 1.0f);
  logits[64] = logits[127] = -kInf;
  const SamplingParams params{.seed = 8};
  expect_distribution(logits, params, naive_probabilities(logits, params, std::vector<bool>(kVocab, true)));
}

TEST(Sampler, TopPCutsThroughTiesByAscendingId) {
  std::vector<float> logits(1000, 1.0f);
  logits[700] = 2.0f;
  const SamplingParams params{.top_p = 0.25, .seed = 4};
  const std::vector<double> p = naive_probabilities(logits, params, std::vector<bool>(1000, true));
  EXPECT_EQ(std::count_if(p.begin(), p.end(), [](double x) { return x > 0; }), 249);  // 700, then 0 to 247
  Sampler sampler;
  RequestState state = request(params);
  std::set<int32_t> seen;
  for (; state.draws < 5000; ++state.draws) seen.insert(sampler.sample(state, logits, {}));
  EXPECT_EQ(seen.size(), 249u);
  for (const int32_t token : seen) EXPECT_GT(p[token], 0) << token;
}

TEST(Sampler, EveryInstructionSetDrawsTheSameTokens) {
  const std::vector<float> logits = random_logits(3001, 31, 2.0f);
  const CpuFeatures machine = CpuFeatures::detected();
  for (const SamplingParams& params :
       {SamplingParams{.seed = 1}, SamplingParams{.temperature = 0.7, .top_k = 50, .seed = 1},
        SamplingParams{.temperature = 1.4, .top_p = 0.9, .seed = 1}, SamplingParams{.min_p = 0.05, .seed = 1}}) {
    std::vector<std::vector<int32_t>> tokens;
    for (const CpuLevel level : {CpuLevel::kPortable, CpuLevel::kAvx2, CpuLevel::kAvx512}) {
      Sampler sampler(0, vocab_kernels(machine.capped(level)));
      RequestState state = request(params);
      for (tokens.emplace_back(); state.draws < 200; ++state.draws) {
        tokens.back().push_back(sampler.sample(state, logits, {}));
      }
      EXPECT_EQ(tokens.back(), tokens.front()) << to_string(level);
    }
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

TEST(Sampler, EditsActOnGreedyAndDrawnTokens) {
  Sampler sampler;
  const std::vector<float> logits = {5, 4.5f, 4, -3};
  const auto sample = [&](SamplingParams params, const std::vector<int32_t>& output = {}) {
    params.temperature = 0;
    const int32_t greedy = sampler.sample(request_after(params, {0}, output, 4), logits, {});
    params.temperature = 1e-3;  // all but certain, drawn all the same
    EXPECT_EQ(sampler.sample(request_after(params, {0}, output, 4), logits, {}), greedy);
    return greedy;
  };
  EXPECT_EQ(sample({}), 0);
  EXPECT_EQ(sample({.presence_penalty = 1}), 0);  // the prompt does not count
  EXPECT_EQ(sample({.presence_penalty = 1}, {0}), 1);
  EXPECT_EQ(sample({.frequency_penalty = 0.3}, {0}), 0);
  EXPECT_EQ(sample({.frequency_penalty = 0.3}, {0, 0}), 1);
  EXPECT_EQ(sample({.repetition_penalty = 1.2}), 1);
  EXPECT_EQ(sample({.logit_bias = {{3, 20.0f}}}), 3);
  EXPECT_EQ(sample({.stop_token_ids = {1}, .min_tokens = 1, .eos_token_ids = {0}}), 2);
  EXPECT_EQ(sample({.stop_token_ids = {1}, .min_tokens = 1, .eos_token_ids = {0}}, {2}), 0);
  EXPECT_EQ(sample({.ignore_eos = true, .min_tokens = 1, .eos_token_ids = {0}}), 0);
  EXPECT_EQ(sample({.allowed_token_ids = std::vector<int32_t>{3, 2}}), 2);
  EXPECT_EQ(sample({.bad_words = {{2, 0}, {1}}}), 0);
  EXPECT_EQ(sample({.bad_words = {{0, 0}}}), 0);  // the prompt does not count
  EXPECT_EQ(sample({.bad_words = {{2, 0}, {1}}}, {2}), 2);
}

TEST(Sampler, TheGrammarMaskAndTheRequestsOwnSetMeet) {
  Sampler sampler;
  const std::vector<float> logits = {5, 4, 3, 2};
  const RequestState state =
      request_after({.temperature = 0, .allowed_token_ids = std::vector<int32_t>{0, 2, 3}}, {1}, {}, 4);
  EXPECT_EQ(sampler.sample(state, logits, std::vector<uint32_t>{0b1110}), 2);
  EXPECT_THAT(error_text([&] { sampler.sample(state, logits, std::vector<uint32_t>{0b0010}); }),
              HasSubstr("the grammar mask, allowed_token_ids"));
}

TEST(Sampler, WhenEditsLeaveNothingTheRequestIsAtFault) {
  Sampler sampler;
  for (const double temperature : {0.0, 1.0}) {
    const SamplingParams params{.temperature = temperature,
                                .min_tokens = 3,
                                .eos_token_ids = {1},
                                .allowed_token_ids = std::vector<int32_t>{1}};
    EXPECT_THAT(error_text([&] { sampler.sample(request_after(params, {0}, {}, 3), std::vector<float>{1, 2, 3}, {}); }),
                HasSubstr("no token of 3 can be drawn: allowed_token_ids, bad_words and min_tokens leave none"));
  }
}

TEST(Sampler, EditsDoNotHideABadRow) {
  Sampler sampler;
  const RequestState state = request_after({.allowed_token_ids = std::vector<int32_t>{0}}, {1}, {}, 3);
  EXPECT_THAT(error_text([&] { sampler.sample(state, std::vector<float>{1, kNan, 2}, {}); }, ErrorCode::kUnsupported),
              HasSubstr("at token 1"));
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

TEST(Sampler, ChoicesOfARequestDrawFromStreamsOfTheirOwn) {
  Sampler sampler;
  for (const std::optional<uint64_t> seed : {std::optional<uint64_t>(7), std::optional<uint64_t>()}) {
    std::set<std::vector<int32_t>> streams;
    for (int32_t choice = 0; choice < 8; ++choice) {
      const SamplingParams params{.temperature = 1.5, .seed = seed, .choice = choice};
      const std::vector<int32_t> tokens = draw(sampler, params, "x", 30);
      EXPECT_EQ(draw(sampler, params, "x", 30), tokens);
      streams.insert(tokens);
    }
    EXPECT_EQ(streams.size(), 8u);
  }
}

TEST(TokenLogprob, EqualsTheNaiveForm) {
  for (const int64_t vocab : {1, 2, 7, 1000, 5000}) {
    const std::vector<float> logits = random_logits(vocab, static_cast<uint32_t>(vocab), 4.0f);
    double sum = 0;
    for (const float x : logits) sum += std::exp(static_cast<double>(x));
    std::vector<int32_t> order(vocab);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    for (const int32_t top : {-1, 0, 1, 5, 20, static_cast<int32_t>(vocab)}) {
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
  EXPECT_NO_THROW(validate({.max_tokens = 7,
                            .presence_penalty = -2,
                            .frequency_penalty = 2,
                            .repetition_penalty = 1e-9,
                            .logit_bias = {{0, -1e9f}, {9, 3.0f}},
                            .min_tokens = 7,
                            .eos_token_ids = {100},  // of a tokenizer that knows more than the model
                            .allowed_token_ids = std::vector<int32_t>{3, 3},
                            .bad_words = {{1}, {2, 3}, {1}},
                            .choice = 127},
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
  EXPECT_THAT(text({.stop_token_ids = {3, 10}}), HasSubstr("stop_token_ids: token 10"));
  EXPECT_THAT(text({.stop_token_ids = {-1}}), HasSubstr("stop_token_ids: token -1"));
  for (const double bad : {-2.01, 2.01, nan}) {
    EXPECT_THAT(text({.presence_penalty = bad}), HasSubstr("presence_penalty is"));
    EXPECT_THAT(text({.frequency_penalty = bad}), HasSubstr("frequency_penalty is"));
  }
  for (const double bad : {0.0, -1.0, nan, HUGE_VAL}) {
    EXPECT_THAT(text({.repetition_penalty = bad}), HasSubstr("repetition_penalty is"));
  }
  EXPECT_THAT(text({.min_tokens = -1}), HasSubstr("min_tokens is -1"));
  EXPECT_THAT(text({.max_tokens = 4, .min_tokens = 5}), HasSubstr("min_tokens is 5; it must be at most max_tokens, 4"));
  EXPECT_THAT(text({.logit_bias = {{1, kNan}}}), HasSubstr("logit_bias: the bias of token 1 is nan"));
  EXPECT_THAT(text({.logit_bias = {{1, kInf}}}), HasSubstr("logit_bias: the bias of token 1 is inf"));
  EXPECT_THAT(text({.logit_bias = {{10, 1.0f}}}), HasSubstr("logit_bias: token 10"));
  EXPECT_THAT(text({.logit_bias = {{1, 1.0f}, {2, 0.0f}, {1, 2.0f}}}), HasSubstr("logit_bias: token 1 is named twice"));
  EXPECT_THAT(text({.allowed_token_ids = std::vector<int32_t>{}}), HasSubstr("allowed_token_ids is empty"));
  EXPECT_THAT(text({.allowed_token_ids = std::vector<int32_t>{3, -1}}), HasSubstr("allowed_token_ids: token -1"));
  EXPECT_THAT(text({.bad_words = {{1}, {}}}), HasSubstr("bad_words: entry 1 has 0 tokens"));
  EXPECT_THAT(text({.bad_words = {{1, 10}}}), HasSubstr("bad_words: token 10"));
  EXPECT_THAT(text({.bad_words = {std::vector<int32_t>(1025, 1)}}), HasSubstr("entry 0 has 1025 tokens"));
  EXPECT_THAT(text({.bad_words = std::vector<std::vector<int32_t>>(1025, {1})}), HasSubstr("bad_words has 1025"));
  EXPECT_THAT(text({.choice = -1}), HasSubstr("choice is -1"));
}

}  // namespace
}  // namespace spyre::runner
