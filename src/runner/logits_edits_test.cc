#include "runner/logits_edits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>
#include <set>

namespace spyre::runner {
namespace {

using ::testing::ElementsAre;
using Tokens = std::vector<int32_t>;

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> edited(const SamplingParams& params, const Tokens& prompt, const Tokens& output,
                          std::vector<float> logits) {
  LogitsEdits edits(params, prompt, {}, std::ssize(logits));
  for (const int32_t token : output) edits.append(token);
  edits.apply(params, output, logits);
  return logits;
}

TEST(LogitsEdits, DefaultsChangeNothing) {
  LogitsEdits edits(SamplingParams{.eos_token_ids = {2}}, Tokens{1, 2}, {}, 4);
  EXPECT_TRUE(edits.none());
  edits.append(1);
  EXPECT_TRUE(edits.none());
  EXPECT_TRUE(LogitsEdits().none());
}

TEST(LogitsEdits, PresenceAndFrequencyCountGeneratedTokensOnly) {
  const std::vector<float> logits = {4, -4, 1, 2};
  EXPECT_THAT(edited({.presence_penalty = 0.5}, {0, 0, 3}, {1, 2, 2}, logits), ElementsAre(4, -4.5f, 0.5f, 2));
  EXPECT_THAT(edited({.frequency_penalty = 0.5}, {0, 0, 3}, {1, 2, 2}, logits), ElementsAre(4, -4.5f, 0, 2));
  EXPECT_THAT(edited({.presence_penalty = -1, .frequency_penalty = 0.25}, {}, {1, 2, 2}, logits),
              ElementsAre(4, -3.25f, 1.5f, 2));
}

TEST(LogitsEdits, RepetitionCountsPromptAndOutputOnce) {
  const std::vector<float> logits = {4, -4, 1, 2, 0};
  EXPECT_THAT(edited({.repetition_penalty = 2}, {0, 0, 1}, {1, 2, 2, 4}, logits), ElementsAre(2, -8, 0.5f, 2, 0));
  EXPECT_THAT(edited({.repetition_penalty = 0.5}, {0}, {1}, logits), ElementsAre(8, -2, 1, 2, 0));
}

TEST(LogitsEdits, PenaltiesComeAfterTheBiasRepetitionFirst) {
  const SamplingParams params{
      .presence_penalty = 1, .frequency_penalty = 0.5, .repetition_penalty = 2, .logit_bias = {{1, 5.0f}}};
  // (-1 + 5) / 2 - 2 * 0.5 - 1; the other way round it would be -7 or 3.
  EXPECT_THAT(edited(params, {}, {1, 1}, {0, -1, 3}), ElementsAre(0, 0, 3));
}

TEST(LogitsEdits, BiasIsAdded) {
  EXPECT_THAT(edited({.logit_bias = {{2, 1.5f}, {0, -100.0f}}}, {}, {}, {1, 2, 3}), ElementsAre(-99, 2, 4.5f));
}

TEST(LogitsEdits, AllowedTokensAloneStay) {
  const SamplingParams params{.allowed_token_ids = Tokens{33, 2, 2}};
  std::vector<float> logits(40, 1.0f);
  logits = edited(params, {}, {}, logits);
  for (int32_t t = 0; t < 40; ++t) EXPECT_EQ(logits[t], t == 33 || t == 2 ? 1.0f : -kInf) << t;
}

TEST(LogitsEdits, MinTokensHoldsBackTheEndings) {
  const SamplingParams params{
      .ignore_eos = false, .stop_token_ids = {0}, .min_tokens = 2, .eos_token_ids = {3, 99, -1}};
  const std::vector<float> logits = {1, 2, 3, 4};
  EXPECT_THAT(edited(params, {1}, {}, logits), ElementsAre(-kInf, 2, 3, -kInf));
  EXPECT_THAT(edited(params, {1}, {1}, logits), ElementsAre(-kInf, 2, 3, -kInf));
  EXPECT_THAT(edited(params, {1}, {1, 2}, logits), ElementsAre(1, 2, 3, 4));
  LogitsEdits edits(params, Tokens{1}, {}, 4);
  EXPECT_FALSE(edits.none());
  edits.append(1);
  edits.append(1);
  EXPECT_TRUE(edits.none());
  // An EOS token that ends nothing needs no holding back; the stop tokens do.
  SamplingParams ignoring = params;
  ignoring.ignore_eos = true;
  EXPECT_THAT(edited(ignoring, {1}, {}, logits), ElementsAre(-kInf, 2, 3, 4));
  ignoring.stop_token_ids.clear();
  EXPECT_TRUE(LogitsEdits(ignoring, Tokens{1}, {}, 4).none());
}

TEST(LogitsEdits, ABadWordIsHeldBackAtItsLastToken) {
  const SamplingParams params{.bad_words = {{1}, {2, 3}, {0, 2, 0}}};
  const std::vector<float> logits = {1, 2, 3, 4};
  EXPECT_THAT(edited(params, {}, {}, logits), ElementsAre(1, -kInf, 3, 4));
  EXPECT_THAT(edited(params, {}, {2}, logits), ElementsAre(1, -kInf, 3, -kInf));
  EXPECT_THAT(edited(params, {}, {2, 0}, logits), ElementsAre(1, -kInf, 3, 4));
  EXPECT_THAT(edited(params, {}, {0, 2}, logits), ElementsAre(-kInf, -kInf, 3, -kInf));
  // The prompt is not looked at.
  EXPECT_THAT(edited(params, {0, 2}, {}, logits), ElementsAre(1, -kInf, 3, 4));
  EXPECT_THAT(edited(params, {0}, {2}, logits), ElementsAre(1, -kInf, 3, -kInf));
}

TEST(LogitsEdits, FiniteStaysFiniteAndLostStaysLost) {
  constexpr float kMax = std::numeric_limits<float>::max();
  EXPECT_THAT(edited({.repetition_penalty = 1e-300}, {0, 1, 2}, {}, {kMax, -kMax, 0}),
              ElementsAre(kMax, -kMax * 1e-30f, 0));
  EXPECT_THAT(edited({.repetition_penalty = 1e300}, {0, 1, 2}, {}, {kMax, -kMax, 0}),
              ElementsAre(kMax / 1e30f, -kMax, 0));
  EXPECT_THAT(edited({.logit_bias = {{0, kMax}, {1, -kMax}, {2, kMax}}}, {}, {}, {kMax, -kMax, -kInf}),
              ElementsAre(kMax, -kMax, -kInf));
}

TEST(LogitsEdits, CountsKeptStepByStepAreThoseOfTheWholeHistory) {
  std::mt19937 random(7);
  constexpr int64_t kVocab = 50;
  const SamplingParams params{.presence_penalty = 0.75, .frequency_penalty = 0.25, .repetition_penalty = 1.5};
  Tokens prompt, output;
  for (int i = 0; i < 40; ++i) prompt.push_back(static_cast<int32_t>(random() % kVocab));
  LogitsEdits edits(params, prompt, {}, kVocab);
  for (int step = 0; step < 200; ++step) {
    const std::set<int32_t> in_prompt(prompt.begin(), prompt.end());
    std::map<int32_t, int> counts;
    for (const int32_t token : output) ++counts[token];
    std::vector<float> logits(kVocab), expected(kVocab);
    for (int32_t t = 0; t < kVocab; ++t) {
      float x = logits[t] = static_cast<float>(t % 7) - 3;
      const int n = counts.contains(t) ? counts[t] : 0;
      if (n > 0 || in_prompt.contains(t)) x = x > 0 ? x / 1.5f : x * 1.5f;
      expected[t] = x - 0.25f * static_cast<float>(n) - (n > 0 ? 0.75f : 0.0f);
    }
    std::vector<float> rebuilt = logits;
    edits.apply(params, output, logits);
    ASSERT_EQ(logits, expected) << "after " << step;
    // A worker that comes to know the request with its output already there sees the same.
    LogitsEdits(params, prompt, output, kVocab).apply(params, output, rebuilt);
    ASSERT_EQ(rebuilt, expected) << "after " << step;
    output.push_back(static_cast<int32_t>(random() % kVocab));
    edits.append(output.back());
  }
}

}  // namespace
}  // namespace spyre::runner
