#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>

#include "base/error.h"
#include "runner/testing/echo_runner.h"
#include "runner/testing/steps.h"

namespace spyre::engine {
namespace {

using runner::ForwardBatch;
using runner::Logits;
using runner::SamplingParams;
using runner::testing::EchoModel;
using runner::testing::EchoRunner;
using runner::testing::tokens_from;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int32_t kVocab = 97;
const EchoModel& model() {
  static const EchoModel echo(kVocab, 64);
  return echo;
}

struct Rig {
  explicit Rig(int64_t max_num_batched_tokens = 16, int64_t max_model_len = 48, int64_t num_blocks = 13) {
    auto owned = std::make_unique<EchoRunner>(model(), EchoRunner::Output::kLogits, 4);
    runner = owned.get();
    worker = std::make_unique<runner::Worker>(
        std::move(owned),
        runner::WorkerConfig{
            .max_model_len = max_model_len, .max_num_batched_tokens = max_num_batched_tokens, .max_num_seqs = 1});
    worker->initialize_kv_cache(num_blocks);
    engine = std::make_unique<Engine>(*worker, num_blocks);
    all_blocks = engine->free_blocks();
  }
  // Whatever happened, nothing is left behind and the engine answers as a new one does.
  void expect_clean() {
    runner->before_forward = nullptr;
    runner->after_forward = nullptr;
    EXPECT_EQ(engine->free_blocks(), all_blocks);
    EXPECT_EQ(worker->num_requests(), 0);
    const GenerateRequest request{.prompt_ids = tokens_from(1, 20, kVocab), .sampling = {.temperature = 0}};
    EXPECT_EQ(engine->generate(request).token_ids, Rig().engine->generate(request).token_ids);
    EXPECT_EQ(engine->free_blocks(), all_blocks);
  }
  EchoRunner* runner = nullptr;
  std::unique_ptr<runner::Worker> worker;
  std::unique_ptr<Engine> engine;
  int64_t all_blocks = 0;
};

GenerateRequest greedy(int64_t prompt, int64_t max_tokens) {
  return {.prompt_ids = tokens_from(5, prompt, kVocab), .sampling = {.temperature = 0, .max_tokens = max_tokens}};
}

template <typename Function>
std::string error_text(ErrorCode code, Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

TEST(Engine, StopsAtMaxTokens) {
  Rig rig;
  std::vector<int32_t> streamed;
  const GenerateResult result =
      rig.engine->generate(greedy(7, 9), [&](int32_t token, const runner::TokenLogprob* logprob) {
        EXPECT_EQ(logprob, nullptr);
        streamed.push_back(token);
      });
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
  EXPECT_EQ(result.token_ids.size(), 9u);
  EXPECT_EQ(result.token_ids, streamed);
  EXPECT_EQ(result.timings.decode_steps, 8);
  EXPECT_GT(result.timings.prefill, 0);
  EXPECT_GT(result.timings.decode, 0);
  EXPECT_EQ(rig.runner->forwards, 9);
  rig.expect_clean();
}

TEST(Engine, AnyChunkingGivesTheSameOutputs) {
  std::optional<GenerateResult> first;
  for (const int64_t chunk : {48, 30, 16, 7, 3, 1}) {
    Rig rig(chunk);
    GenerateRequest request = greedy(31, 12);
    request.sampling = {
        .temperature = 0.9, .top_p = 0.95, .seed = 5, .max_tokens = 12, .logprobs = 3, .prompt_logprobs = 2};
    const GenerateResult result = rig.engine->generate(request);
    ASSERT_EQ(result.token_ids.size(), 12u);
    ASSERT_EQ(result.prompt_logprobs.size(), 30u);
    if (!first) first = result;
    EXPECT_EQ(result.token_ids, first->token_ids) << chunk;
    for (size_t i = 0; i < 30; ++i) {
      EXPECT_EQ(result.prompt_logprobs[i].token, request.prompt_ids[i + 1]);
      EXPECT_EQ(result.prompt_logprobs[i].top, first->prompt_logprobs[i].top) << chunk;
    }
    for (size_t i = 0; i < 12; ++i) {
      EXPECT_EQ(result.logprobs[i].token, result.token_ids[i]);
      EXPECT_EQ(result.logprobs[i].top, first->logprobs[i].top) << chunk;
    }
    rig.expect_clean();
  }
}

TEST(Engine, AnEndingTokenIsTheLastAndNamed) {
  Rig rig;
  const std::vector<int32_t> free_run = rig.engine->generate(greedy(7, 12)).token_ids;
  const int32_t ending = free_run[4];
  const auto first = std::find(free_run.begin(), free_run.end(), ending) - free_run.begin();
  const std::vector<int32_t> expected(free_run.begin(), free_run.begin() + first + 1);

  GenerateRequest request = greedy(7, 12);
  request.eos_token_ids = {kVocab - 1, ending};
  GenerateResult result = rig.engine->generate(request);
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
  EXPECT_EQ(result.stop_token, ending);
  EXPECT_EQ(result.token_ids, expected);

  request.sampling.ignore_eos = true;
  EXPECT_EQ(rig.engine->generate(request).token_ids, free_run);

  request.sampling.stop_token_ids = {ending};  // a stop id holds even so
  result = rig.engine->generate(request);
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
  EXPECT_EQ(result.token_ids, expected);
  rig.expect_clean();
}

TEST(Engine, AnEndingTokenWinsOverALimitReachedWithIt) {
  Rig rig;
  GenerateRequest request = greedy(7, 1);
  request.eos_token_ids = {rig.engine->generate(request).token_ids[0]};
  EXPECT_EQ(rig.engine->generate(request).finish_reason, FinishReason::kStop);
}

TEST(Engine, TheModelLengthEndsAText) {
  Rig rig;
  const GenerateResult result = rig.engine->generate(greedy(45, 1000));
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
  EXPECT_EQ(result.token_ids.size(), 3u);
  EXPECT_EQ(rig.engine->generate(greedy(47, 5)).token_ids.size(), 1u);
  rig.expect_clean();
}

TEST(Engine, RefusalsCarryTheNumbers) {
  Rig rig;
  const auto text = [&](const GenerateRequest& request) {
    return error_text(ErrorCode::kInvalidArgument, [&] { rig.engine->generate(request); });
  };
  EXPECT_THAT(text(greedy(48, 1)),
              HasSubstr("48 tokens; with max_model_len 48 it may have at most 47 (max_tokens is 1)"));
  EXPECT_THAT(text(greedy(500, 1)), HasSubstr("500 tokens"));
  EXPECT_THAT(text(greedy(49, 0)), HasSubstr("at most 48"));
  EXPECT_THAT(text(greedy(0, 1)), HasSubstr("empty"));
  GenerateRequest request = greedy(3, 1);
  request.prompt_ids[2] = kVocab;
  EXPECT_THAT(text(request), HasSubstr("prompt token id 97 at position 2 is outside the vocabulary of 97"));
  request.prompt_ids[2] = -1;
  EXPECT_THAT(text(request), HasSubstr("prompt token id -1"));
  request = greedy(3, 1);
  request.sampling.top_p = 0;
  EXPECT_THAT(text(request), HasSubstr("top_p is 0"));
  EXPECT_THAT(text(greedy(3, -1)), HasSubstr("max_tokens is -1"));
  EXPECT_EQ(rig.runner->forwards, 0);
  rig.expect_clean();
}

TEST(Engine, NoTokensMeansScoringThePrompt) {
  Rig rig;
  GenerateRequest request = greedy(48, 0);
  request.sampling.prompt_logprobs = 1;
  const GenerateResult result = rig.engine->generate(request);
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
  EXPECT_TRUE(result.token_ids.empty());
  EXPECT_EQ(result.prompt_logprobs.size(), 47u);
  rig.expect_clean();
}

TEST(Engine, ACacheTooSmallIsRefusedWithTheArithmetic) {
  EXPECT_THAT(error_text(ErrorCode::kResourceExhausted, [] { Rig(16, 48, 12); }),
              HasSubstr("max_model_len 48 needs 12 KV blocks of 4 tokens; the cache has 11 (12 with the null block)"));
}

TEST(Engine, CancelBeforeDuringPrefillAndDuringDecode) {
  for (const int64_t at : {0, 1, 3, 5}) {
    Rig rig(4);  // a prompt of 10 takes 3 steps
    std::atomic<bool> cancel{at == 0};
    rig.runner->before_forward = [&](const ForwardBatch&) { cancel = rig.runner->forwards >= at; };
    const GenerateResult result = rig.engine->generate(greedy(10, 30), {}, &cancel);
    EXPECT_EQ(result.finish_reason, FinishReason::kAbort);
    EXPECT_EQ(rig.runner->forwards, at);
    EXPECT_EQ(std::ssize(result.token_ids), std::max<int64_t>(0, at - 2));
    rig.expect_clean();
  }
}

TEST(Engine, TroubleInsideTheRequestIsAnErrorResult) {
  Rig rig(4);
  rig.runner->after_forward = [&](const ForwardBatch&, Logits& logits) {
    if (rig.runner->forwards == 5) logits.values[3] = std::numeric_limits<float>::infinity();
  };
  const GenerateResult result = rig.engine->generate(greedy(10, 30));
  EXPECT_EQ(result.finish_reason, FinishReason::kError);
  EXPECT_THAT(result.error, HasSubstr("inf at token 3"));
  EXPECT_EQ(result.token_ids.size(), 2u);
  rig.expect_clean();
}

TEST(Engine, AThrowingForwardComesOutAndLeavesNothing) {
  for (const int64_t at : {1, 2, 3, 4}) {
    Rig rig(4);
    rig.runner->before_forward = [&](const ForwardBatch&) {
      if (rig.runner->forwards == at) throw_error(ErrorCode::kUnavailable, "the device is away");
    };
    EXPECT_THAT(error_text(ErrorCode::kUnavailable, [&] { rig.engine->generate(greedy(10, 30)); }), HasSubstr("away"));
    rig.expect_clean();
  }
}

TEST(Engine, AThrowingCallbackComesOutAndLeavesNothing) {
  Rig rig;
  int calls = 0;
  const auto callback = [&](int32_t, const runner::TokenLogprob*) {
    if (++calls == 3) throw std::runtime_error("the reader has gone");
  };
  EXPECT_THROW(rig.engine->generate(greedy(10, 30), callback), std::runtime_error);
  rig.expect_clean();
}

TEST(Engine, BlocksAreTakenAsTheSequenceGrows) {
  Rig rig(4);
  std::vector<int64_t> in_use;
  rig.runner->before_forward = [&](const ForwardBatch&) {
    in_use.push_back(rig.all_blocks - rig.engine->free_blocks());
  };
  rig.engine->generate(greedy(10, 8));  // steps end at 4, 8, 10, then 11 .. 17 tokens
  EXPECT_THAT(in_use, ElementsAre(1, 2, 3, 3, 3, 4, 4, 4, 4, 5));
  rig.expect_clean();
}

TEST(Engine, UnseededRequestsDifferAndSeededOnesDoNot) {
  Rig rig;
  GenerateRequest request = greedy(5, 20);
  request.sampling.temperature = 1.5;
  const std::vector<int32_t> first = rig.engine->generate(request).token_ids;
  EXPECT_NE(rig.engine->generate(request).token_ids, first);
  request.sampling.seed = 7;
  const std::vector<int32_t> seeded = rig.engine->generate(request).token_ids;
  EXPECT_EQ(rig.engine->generate(request).token_ids, seeded);
}

TEST(FinishReason, HasTheNamesOfTheField) {
  EXPECT_EQ(to_string(FinishReason::kStop), "stop");
  EXPECT_EQ(to_string(FinishReason::kLength), "length");
  EXPECT_EQ(to_string(FinishReason::kAbort), "abort");
  EXPECT_EQ(to_string(FinishReason::kError), "error");
}

}  // namespace
}  // namespace spyre::engine
