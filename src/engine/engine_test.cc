#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>

#include "engine/test_rig.h"

namespace spyre::engine {
namespace {

using runner::ForwardBatch;
using runner::Logits;
using runner::testing::tokens_from;
using testing::Answers;
using ::testing::ElementsAre;
using testing::error_text;
using testing::greedy;
using ::testing::HasSubstr;
using testing::kVocab;
using testing::Rig;
using testing::same;

Request named(Request request, std::string id) {
  request.id = std::move(id);
  return request;
}

TEST(Generate, StopsAtMaxTokens) {
  Rig rig;
  std::vector<int32_t> streamed;
  const GenerateResult result = generate(*rig.engine, greedy(7, 9), [&](const OutputDelta& delta) {
    EXPECT_TRUE(delta.logprobs.empty());
    streamed.insert(streamed.end(), delta.token_ids.begin(), delta.token_ids.end());
  });
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
  EXPECT_EQ(result.token_ids.size(), 9u);
  EXPECT_EQ(result.token_ids, streamed);
  EXPECT_EQ(result.timings.decode_steps, 8);
  EXPECT_GT(result.timings.prefill, 0);
  EXPECT_GT(result.timings.decode, 0);
  EXPECT_EQ(rig.runner->forwards, 9);
  EXPECT_TRUE(rig.clean());
}

TEST(Generate, AnyChunkingGivesTheSameOutputs) {
  std::optional<GenerateResult> first;
  for (const int64_t chunk : {48, 30, 16, 7, 3, 1}) {
    Rig rig({.max_num_batched_tokens = chunk});
    Request request = greedy(31, 12);
    request.sampling = {
        .temperature = 0.9, .top_p = 0.95, .seed = 5, .max_tokens = 12, .logprobs = 3, .prompt_logprobs = 2};
    const GenerateResult result = generate(*rig.engine, request);
    ASSERT_EQ(result.token_ids.size(), 12u);
    ASSERT_EQ(result.prompt_logprobs.size(), 30u);
    if (!first) first = result;
    EXPECT_EQ(result.token_ids, first->token_ids) << chunk;
    EXPECT_TRUE(same(result.prompt_logprobs, first->prompt_logprobs)) << chunk;
    EXPECT_TRUE(same(result.logprobs, first->logprobs)) << chunk;
    for (size_t i = 0; i < 30; ++i) EXPECT_EQ(result.prompt_logprobs[i].token, request.prompt_ids[i + 1]);
    for (size_t i = 0; i < 12; ++i) EXPECT_EQ(result.logprobs[i].token, result.token_ids[i]);
    EXPECT_TRUE(rig.clean());
  }
}

TEST(Generate, AnEndingTokenIsTheLastAndNamed) {
  Rig rig;
  const std::vector<int32_t> free_run = generate(*rig.engine, greedy(7, 12)).token_ids;
  const int32_t ending = free_run[4];
  const auto first = std::find(free_run.begin(), free_run.end(), ending) - free_run.begin();
  const std::vector<int32_t> expected(free_run.begin(), free_run.begin() + first + 1);

  Request request = greedy(7, 12);
  request.sampling.eos_token_ids = {kVocab - 1, ending};  // two of them
  GenerateResult result = generate(*rig.engine, request);
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
  EXPECT_EQ(result.stop_token, std::nullopt);  // an EOS token is not named
  EXPECT_EQ(result.token_ids, expected);

  request.sampling.ignore_eos = true;
  EXPECT_EQ(generate(*rig.engine, request).token_ids, free_run);

  request.sampling.stop_token_ids = {ending};  // a stop id holds even so
  result = generate(*rig.engine, request);
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
  EXPECT_EQ(result.stop_token, ending);
  EXPECT_EQ(result.token_ids, expected);
  EXPECT_TRUE(rig.clean());
}

TEST(Generate, AnEndingTokenWinsOverALimitReachedWithIt) {
  Rig rig;
  Request request = greedy(7, 1);
  request.sampling.eos_token_ids = {generate(*rig.engine, request).token_ids[0]};
  EXPECT_EQ(generate(*rig.engine, request).finish_reason, FinishReason::kStop);
}

TEST(Generate, TheModelLengthEndsAText) {
  Rig rig;
  const GenerateResult result = generate(*rig.engine, greedy(45, 1000));
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
  EXPECT_EQ(result.token_ids.size(), 3u);
  EXPECT_EQ(generate(*rig.engine, greedy(47, 5)).token_ids.size(), 1u);
  EXPECT_EQ(generate(*rig.engine, greedy(40, 8)).token_ids.size(), 8u);  // exactly
  EXPECT_TRUE(rig.clean());
}

TEST(Engine, RefusalsCarryTheNumbers) {
  Rig rig;
  const auto text = [&](const Request& request) {
    return error_text(ErrorCode::kInvalidArgument, [&] { rig.engine->submit(request, {}); });
  };
  EXPECT_THAT(text(greedy(48, 1)),
              HasSubstr("48 tokens; with max_model_len 48 it may have at most 47 (max_tokens is 1)"));
  EXPECT_THAT(text(greedy(500, 1)), HasSubstr("500 tokens"));
  EXPECT_THAT(text(greedy(49, 0)), HasSubstr("at most 48"));
  EXPECT_THAT(text(greedy(0, 1)), HasSubstr("empty"));
  Request request = greedy(3, 1);
  request.prompt_ids[2] = kVocab;
  EXPECT_THAT(text(request), HasSubstr("prompt token id 97 at position 2 is outside the vocabulary of 97"));
  request.prompt_ids[2] = -1;
  EXPECT_THAT(text(request), HasSubstr("prompt token id -1"));
  request = greedy(3, 1);
  request.sampling.top_p = 0;
  EXPECT_THAT(text(request), HasSubstr("top_p is 0"));
  request = greedy(3, 1);
  request.n = 0;
  EXPECT_THAT(text(request), HasSubstr("n is 0"));
  request = greedy(3, 1);
  request.stop = {"x"};
  EXPECT_THAT(text(request), HasSubstr("no tokenizer"));
  request.stop = {"x", ""};
  EXPECT_THAT(text(request), HasSubstr("empty string"));
  EXPECT_THAT(text(greedy(3, -1)), HasSubstr("max_tokens is -1"));
  rig.engine->submit(named(greedy(3, 1), "twice"), {});
  EXPECT_THAT(text(named(greedy(3, 1), "twice")), HasSubstr("'twice' is in use"));
  rig.run();
  EXPECT_EQ(rig.runner->forwards, 1);
  EXPECT_TRUE(rig.clean());
}

TEST(Generate, NoTokensMeansScoringThePrompt) {
  Rig rig;
  Request request = greedy(48, 0);
  request.sampling.prompt_logprobs = 1;
  const GenerateResult result = generate(*rig.engine, request);
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
  EXPECT_TRUE(result.token_ids.empty());
  EXPECT_EQ(result.prompt_logprobs.size(), 47u);
  EXPECT_TRUE(rig.clean());
}

TEST(Engine, ACacheTooSmallIsRefusedWithTheArithmetic) {
  EXPECT_THAT(error_text(ErrorCode::kResourceExhausted, [] { Rig({.num_blocks = 12}); }),
              HasSubstr("max_model_len 48 needs 12 KV blocks of 4 tokens; the cache has 11 (12 with the null block)"));
}

TEST(Generate, CancelBeforeDuringPrefillAndDuringDecode) {
  for (const int64_t at : {0, 1, 3, 5}) {
    Rig rig({.max_num_batched_tokens = 4});  // a prompt of 10 takes 3 steps
    std::atomic<bool> cancel{at == 0};
    rig.runner->before_forward = [&](const ForwardBatch&) { cancel = rig.runner->forwards >= at; };
    const GenerateResult result = generate(*rig.engine, greedy(10, 30), {}, &cancel);
    EXPECT_EQ(result.finish_reason, FinishReason::kAbort);
    EXPECT_EQ(rig.runner->forwards, at);
    EXPECT_EQ(std::ssize(result.token_ids), std::max<int64_t>(0, at - 2));
    EXPECT_TRUE(rig.clean());
  }
}

TEST(Engine, TroubleInsideARequestEndsThatRequestOnly) {
  Rig rig({.max_num_batched_tokens = 4});
  rig.runner->after_forward = [&](const ForwardBatch&, Logits& logits) {
    if (rig.runner->forwards == 5) logits.values[3] = std::numeric_limits<float>::infinity();
  };
  const GenerateResult result = generate(*rig.engine, greedy(10, 30));
  EXPECT_EQ(result.finish_reason, FinishReason::kError);
  EXPECT_THAT(result.error, HasSubstr("inf at token 3"));
  EXPECT_EQ(result.token_ids.size(), 2u);
  EXPECT_TRUE(rig.clean());
}

// What a failing request computed in the step that showed it is not to be found by the next one.
TEST(Engine, AFailedRequestLeavesNoPrefix) {
  Rig rig;
  rig.runner->after_forward = [&](const ForwardBatch&, Logits& logits) {
    if (rig.runner->forwards == 1) logits.values[0] = std::numeric_limits<float>::quiet_NaN();
  };
  EXPECT_EQ(generate(*rig.engine, greedy(16, 3)).finish_reason, FinishReason::kError);
  EXPECT_EQ(rig.engine->cache().cached(), 0);
  EXPECT_EQ(generate(*rig.engine, greedy(16, 3)).num_cached_tokens, 0);
  EXPECT_EQ(generate(*rig.engine, greedy(16, 3)).num_cached_tokens, 12);
}

TEST(Engine, AFailedStepEndsItsRequestsAndNoOthers) {
  Rig rig({.max_num_batched_tokens = 8, .max_num_seqs = 2});
  Answers a, b, waiting;
  rig.engine->submit(named(greedy(6, 5), "a"), a.callback());
  rig.engine->submit(named(greedy(6, 5, 40), "b"), b.callback());
  rig.engine->submit(named(greedy(6, 5, 70), "waiting"), waiting.callback());
  rig.runner->before_forward = [&](const ForwardBatch&) {
    if (rig.runner->forwards == 3) throw_error(ErrorCode::kUnavailable, "the device is away");
  };
  rig.run();
  for (Answers* failed : {&a, &b}) {
    EXPECT_EQ((*failed)[0].last.finish_reason, FinishReason::kError);
    EXPECT_THAT((*failed)[0].last.error, HasSubstr("the device is away"));
    EXPECT_EQ((*failed)[0].after_end, 0);
  }
  EXPECT_EQ(waiting[0].last.finish_reason, FinishReason::kLength);
  EXPECT_EQ(waiting[0].tokens, generate(*Rig().engine, greedy(6, 5, 70)).token_ids);
  EXPECT_EQ(rig.engine->stats().failed_steps, 1);
  EXPECT_FALSE(rig.engine->dead());
  EXPECT_TRUE(rig.clean());
}

TEST(Engine, AWorkerThatFailsAgainAndAgainEndsTheEngine) {
  Rig rig;
  rig.runner->before_forward = [](const ForwardBatch&) { throw std::runtime_error("broken"); };
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(rig.engine->dead());
    EXPECT_EQ(generate(*rig.engine, greedy(5, 2)).finish_reason, FinishReason::kError);
  }
  EXPECT_TRUE(rig.engine->dead());
  EXPECT_THAT(error_text(ErrorCode::kUnavailable, [&] { rig.engine->submit(greedy(5, 2), {}); }),
              HasSubstr("4 failed steps"));
}

TEST(Generate, AThrowingCallbackComesOutAndLeavesNothing) {
  Rig rig;
  int calls = 0;
  const auto callback = [&](const OutputDelta&) {
    if (++calls == 3) throw std::runtime_error("the reader has gone");
  };
  EXPECT_THROW(generate(*rig.engine, greedy(10, 30), callback), std::runtime_error);
  EXPECT_TRUE(rig.clean());
}

TEST(Engine, BlocksAreTakenAsTheSequenceGrows) {
  Rig rig({.max_num_batched_tokens = 4});
  std::vector<int64_t> in_use;
  rig.runner->before_forward = [&](const ForwardBatch&) { in_use.push_back(rig.engine->stats().blocks_used); };
  generate(*rig.engine, greedy(10, 8));  // steps end at 4, 8, 10, then 11 .. 17 tokens
  EXPECT_THAT(in_use, ElementsAre(1, 2, 3, 3, 3, 4, 4, 4, 4, 5));
}

TEST(Generate, UnseededRequestsDifferAndSeededOnesDoNot) {
  Rig rig;
  Request request = greedy(5, 20);
  request.sampling.temperature = 1.5;
  const std::vector<int32_t> first = generate(*rig.engine, request).token_ids;
  EXPECT_NE(generate(*rig.engine, request).token_ids, first);
  request.sampling.seed = 7;
  const std::vector<int32_t> seeded = generate(*rig.engine, request).token_ids;
  EXPECT_EQ(generate(*rig.engine, request).token_ids, seeded);
}

// The choices of a request find its prompt in the cache, draw from their own streams, and end one by one.
TEST(Engine, ChoicesShareThePrompt) {
  Rig rig({.max_num_batched_tokens = 8, .num_blocks = 40});
  Request request = named(greedy(14, 6), "many");
  request.n = 4;
  request.sampling.temperature = 1.2;
  request.sampling.seed = 3;
  request.sampling.prompt_logprobs = 1;
  Answers answers(4);
  rig.engine->submit(request, answers.callback());
  EXPECT_EQ(rig.engine->stats().waiting, 4);
  rig.run();
  std::set<std::vector<int32_t>> distinct;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(answers[i].last.finish_reason, FinishReason::kLength);
    EXPECT_EQ(answers[i].tokens.size(), 6u);
    EXPECT_EQ(answers[i].cached, i == 0 ? 0 : 12);
    EXPECT_EQ(answers[i].prompt_logprobs.size(), i == 0 ? 13u : 0u);
    distinct.insert(answers[i].tokens);
  }
  EXPECT_GT(distinct.size(), 1u);
  EXPECT_EQ(rig.engine->stats().finished[static_cast<size_t>(FinishReason::kLength)], 4);
  EXPECT_TRUE(rig.clean());
}

TEST(Engine, AbortEndsEveryChoiceInEveryState) {
  for (int steps = 0; steps < 6; ++steps) {
    Rig rig({.max_num_batched_tokens = 8, .num_blocks = 40, .max_num_seqs = 2});
    Request request = named(greedy(14, 20), "many");
    request.n = 5;
    Answers answers(5);
    rig.engine->submit(request, answers.callback());
    for (int i = 0; i < steps; ++i) rig.engine->step();
    rig.engine->cancel("nobody");
    rig.engine->cancel("many");
    for (int i = 0; i < 5; ++i) EXPECT_EQ(answers[i].last.finish_reason, FinishReason::kAbort) << steps << " " << i;
    EXPECT_EQ(rig.engine->cache().available(), rig.engine->cache().usable());
    rig.run();
    EXPECT_TRUE(rig.clean()) << steps;
  }
}

// A first choice that fails before the end of the prompt leaves the others to themselves.
TEST(Engine, AFailingFirstChoiceSetsTheOthersFree) {
  Rig rig({.max_num_batched_tokens = 8});
  rig.runner->after_forward = [&](const ForwardBatch&, Logits& logits) {
    if (rig.runner->forwards == 2) logits.values[0] = std::numeric_limits<float>::quiet_NaN();
  };
  Request request = named(greedy(14, 3), "two");
  request.n = 2;
  Answers answers(2);
  rig.engine->submit(request, answers.callback());
  rig.run();
  EXPECT_EQ(answers[0].last.finish_reason, FinishReason::kError);
  EXPECT_EQ(answers[1].last.finish_reason, FinishReason::kLength);
  EXPECT_TRUE(rig.clean());
}

// Preempted in the middle of its prompt, a request scores some positions twice; it hears of each one once.
TEST(Engine, PromptLogprobsSurviveAPreemption) {
  const auto scored = [](const Answers& answers) { return answers.choices[0].prompt_logprobs; };
  Request request = named(greedy(30, 2, 50), "scored");
  request.sampling.prompt_logprobs = 2;
  Answers alone;
  Rig quiet({.max_num_batched_tokens = 4});
  quiet.engine->submit(request, alone.callback());
  quiet.run();
  ASSERT_EQ(scored(alone).size(), 29u);

  Rig rig({.max_num_batched_tokens = 4});  // 12 blocks: 4 for the first prompt, 8 for the second
  Answers first, second;
  rig.engine->submit(named(greedy(14, 30), "first"), first.callback());
  rig.engine->submit(request, second.callback());
  rig.run();
  EXPECT_GT(rig.engine->stats().preemptions, 0);
  EXPECT_EQ(second[0].tokens, alone[0].tokens);
  EXPECT_TRUE(same(scored(second), scored(alone)));
}

TEST(Engine, SaltsKeepPrefixesApart) {
  Rig rig;
  Request request = greedy(16, 2);
  request.cache_salt = "one";
  EXPECT_EQ(generate(*rig.engine, request).num_cached_tokens, 0);
  EXPECT_EQ(generate(*rig.engine, request).num_cached_tokens, 12);
  request.cache_salt = "two";
  EXPECT_EQ(generate(*rig.engine, request).num_cached_tokens, 0);
  request.cache_salt = "";
  EXPECT_EQ(generate(*rig.engine, request).num_cached_tokens, 0);
}

TEST(Engine, CountsWhatItDoes) {
  Rig rig;
  Answers a, b;
  rig.engine->submit(named(greedy(16, 4), "a"), a.callback());
  rig.run();
  rig.engine->submit(named(greedy(16, 3), "b"), b.callback());
  rig.run();
  const EngineStats stats = rig.engine->stats();
  EXPECT_EQ(stats.prompt_tokens, 32);
  EXPECT_EQ(stats.generation_tokens, 7);
  EXPECT_EQ(stats.prefix_cache_queries, 32);
  EXPECT_EQ(stats.prefix_cache_hits, 12);
  EXPECT_EQ(stats.steps, 7);
  EXPECT_EQ(stats.time_to_first_token.total(), 2);
  EXPECT_EQ(stats.inter_token.total(), 5);
  EXPECT_EQ(stats.e2e_latency.total(), 2);
  EXPECT_EQ(stats.queue_time.total(), 2);
  EXPECT_EQ(stats.request_generation_tokens.sum, 7);
  EXPECT_EQ(stats.step_tokens.sum, 16 + 3 + 4 + 2);
  EXPECT_EQ(stats.running + stats.waiting, 0);
  EXPECT_EQ(stats.blocks_used, 0);
  EXPECT_EQ(stats.blocks_total, 12);
}

// Every reading of the clock is a second later.
TEST(Engine, MeasuresWhatLiesBetweenSteps) {
  double time = 0;
  testing::RigOptions options;
  options.engine.clock = [&time] { return time += 1; };
  Rig rig(options);
  Answers a, b;
  rig.engine->submit(named(greedy(8, 3), "a"), a.callback());
  rig.run();
  const EngineStats first = rig.engine->stats();
  EXPECT_EQ(first.steps, 3);
  EXPECT_EQ(first.step_gap.total(), 2);
  EXPECT_GE(first.step_gap.sum, 2);
  EXPECT_EQ(first.forward_seconds, 3);
  EXPECT_EQ(first.sampling_seconds, 3);
  time += 1000;  // idle: nobody waited
  rig.engine->submit(named(greedy(8, 2), "b"), b.callback());
  rig.run();
  EXPECT_EQ(rig.engine->stats().step_gap.total(), 3);
  EXPECT_LT(rig.engine->stats().step_gap.sum, 100);
}

TEST(Engine, MeasuresStepsAndLeavesNothing) {
  Rig rig({.max_num_batched_tokens = 32});
  rig.engine->measure_steps(10);
  EXPECT_GE(rig.engine->step_times().observations(), 5);
  StepShape shape;
  shape.add_prefill(0, 16);
  EXPECT_GT(rig.engine->step_times().predict(shape), 0);
  EXPECT_TRUE(rig.clean());
  EXPECT_EQ(rig.engine->cache().cached(), 0);
  EXPECT_EQ(rig.engine->stats().steps, 0);
}

TEST(FinishReason, HasTheNamesOfTheField) {
  EXPECT_EQ(to_string(FinishReason::kStop), "stop");
  EXPECT_EQ(to_string(FinishReason::kLength), "length");
  EXPECT_EQ(to_string(FinishReason::kAbort), "abort");
  EXPECT_EQ(to_string(FinishReason::kError), "error");
}

}  // namespace
}  // namespace spyre::engine
