// generate_all(): many requests side by side. generate() itself is tested in engine_test.cc.
#include "engine/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "engine/test_rig.h"

namespace spyre::engine {
namespace {

using testing::error_text;
using testing::greedy;
using ::testing::HasSubstr;
using testing::Rig;
using testing::same;

TEST(GenerateAll, GivesWhatEachRequestGivesAlone) {
  Rig rig;
  std::vector<Request> requests;
  for (const int64_t length : {3, 17, 1, 9, 30}) requests.push_back(greedy(length, 8, static_cast<int32_t>(length)));
  requests[1].sampling = {.temperature = 1, .seed = 4, .max_tokens = 11, .logprobs = 2, .prompt_logprobs = 1};
  requests[1].n = 3;
  requests[2].sampling.max_tokens = 0;
  std::vector<GenerateResult> alone;
  for (Request request : requests) {
    request.n = 1;
    alone.push_back(generate(*rig.engine, request));
  }
  const int64_t forwards = rig.runner->forwards;
  const auto all = generate_all(*rig.engine, requests);
  EXPECT_LT(rig.runner->forwards - forwards, forwards);  // they shared steps
  ASSERT_EQ(all.size(), requests.size());
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(std::ssize(all[i]), requests[i].n);
    EXPECT_EQ(all[i][0].token_ids, alone[i].token_ids) << i;
    EXPECT_EQ(all[i][0].finish_reason, alone[i].finish_reason) << i;
    EXPECT_TRUE(same(all[i][0].logprobs, alone[i].logprobs)) << i;
    EXPECT_TRUE(same(all[i][0].prompt_logprobs, alone[i].prompt_logprobs)) << i;
  }
  EXPECT_NE(all[1][1].token_ids, all[1][0].token_ids);
  EXPECT_NE(all[1][1].token_ids, all[1][2].token_ids);
  EXPECT_EQ(all[1][0].prompt_logprobs.size(), 16u);
  EXPECT_TRUE(all[1][2].prompt_logprobs.empty());
  EXPECT_TRUE(rig.clean());
}

TEST(GenerateAll, RefusesBeforeAnythingRuns) {
  Rig rig;
  const std::string text = error_text(ErrorCode::kInvalidArgument, [&] {
    (void)generate_all(*rig.engine, {greedy(5, 4), greedy(6, 4), greedy(48, 4)});
  });
  EXPECT_THAT(text, HasSubstr("48 tokens"));
  EXPECT_EQ(rig.runner->forwards, 0);
  EXPECT_TRUE(rig.clean());
  EXPECT_TRUE(generate_all(*rig.engine, {}).empty());
}

TEST(GenerateAll, WhatIsThrownBetweenStepsEndsAllRequests) {
  Rig rig;
  int steps = 0;
  const auto interrupt = [&] {
    if (++steps == 4) throw std::runtime_error("interrupted");
  };
  EXPECT_THROW((void)generate_all(*rig.engine, {greedy(5, 20), greedy(6, 20)}, interrupt), std::runtime_error);
  EXPECT_EQ(rig.runner->forwards, 3);
  EXPECT_TRUE(rig.clean());
  EXPECT_EQ(generate_all(*rig.engine, {greedy(5, 4)})[0][0].token_ids.size(), 4u);
}

TEST(GenerateAll, AFaultEndsTheRequestsOfItsStepAndIsTold) {
  Rig rig;
  rig.runner->before_forward = [&](const runner::ForwardBatch&) {
    if (rig.runner->forwards == 3) throw std::runtime_error("the device is gone");
  };
  const auto all = generate_all(*rig.engine, {greedy(5, 20), greedy(6, 20)});
  for (const auto& choices : all) {
    EXPECT_EQ(choices[0].finish_reason, FinishReason::kError);
    EXPECT_EQ(choices[0].error, "the device is gone");
    EXPECT_EQ(choices[0].token_ids.size(), 2u);
  }
  EXPECT_TRUE(rig.clean());
}

}  // namespace
}  // namespace spyre::engine
