#include "runner/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/team.h"
#include "runner/testing/echo_runner.h"
#include "runner/testing/steps.h"

namespace spyre::runner {
namespace {

using testing::EchoModel;
using testing::EchoRunner;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::StepBuilder;
using testing::tokens_from;

constexpr int32_t kVocab = 97;
const EchoModel& model() {
  static const EchoModel echo(kVocab, 128);
  return echo;
}

struct Rig {
  explicit Rig(int64_t num_blocks = 40, int64_t block_size = 4) {
    auto owned = std::make_unique<EchoRunner>(model(), EchoRunner::Output::kLogits, block_size);
    runner = owned.get();
    worker = std::make_unique<Worker>(
        std::move(owned), WorkerConfig{.max_model_len = 64, .max_num_batched_tokens = 64, .max_num_seqs = 8});
    worker->load_model();
    worker->initialize_kv_cache(num_blocks);
    worker->warm_up();
  }
  StepOutput run(const Step& step, const GrammarMask* mask = nullptr) {
    return worker->sample(worker->execute(step), mask);
  }
  EchoRunner* runner = nullptr;
  std::unique_ptr<Worker> worker;
};

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

TEST(Worker, CallsOutOfOrderAreNamed) {
  Worker worker(std::make_unique<EchoRunner>(model(), EchoRunner::Output::kLogits),
                {.max_model_len = 64, .max_num_batched_tokens = 64, .max_num_seqs = 8});
  EXPECT_THAT(error_text(ErrorCode::kFailedPrecondition, [&] { worker.execute({}); }),
              HasSubstr("initialize_kv_cache"));
  EXPECT_EQ(worker.find("a"), nullptr);
  worker.initialize_kv_cache(4);
  EXPECT_THAT(error_text(ErrorCode::kFailedPrecondition, [&] { worker.sample(1); }), HasSubstr("none is"));
  const Ticket first = worker.execute({}), second = worker.execute({});
  EXPECT_THAT(error_text(ErrorCode::kFailedPrecondition, [&] { worker.execute({}); }), HasSubstr("1 and 2"));
  EXPECT_THAT(error_text(ErrorCode::kFailedPrecondition, [&] { worker.sample(second); }), HasSubstr("oldest"));
  EXPECT_THAT(error_text(ErrorCode::kFailedPrecondition, [&] { worker.initialize_kv_cache(4); }),
              HasSubstr("ticket 1"));
  EXPECT_THAT(worker.sample(first).requests, IsEmpty());
  EXPECT_THAT(worker.sample(second).requests, IsEmpty());
  EXPECT_THAT(error_text(ErrorCode::kFailedPrecondition, [&] { worker.sample(second); }), HasSubstr("none is"));
}

TEST(Worker, RefusesModelsOfSeveralKvGroupsAndImpossibleLimits) {
  auto runner = std::make_unique<EchoRunner>(model(), EchoRunner::Output::kLogits);
  runner->num_groups = 2;
  Worker worker(std::move(runner), {.max_model_len = 64, .max_num_batched_tokens = 64, .max_num_seqs = 8});
  EXPECT_THAT(error_text(ErrorCode::kUnsupported, [&] { worker.initialize_kv_cache(4); }),
              HasSubstr("2 KV cache groups"));
  Rig rig;
  EXPECT_THAT(error_text(ErrorCode::kInvalidArgument, [&] { rig.worker->initialize_kv_cache(1); }),
              HasSubstr("num_blocks is 1"));
}

TEST(Worker, AStepWithoutTokensOnlyFrees) {
  Rig rig;
  rig.run(StepBuilder().start("a", tokens_from(0, 3), {1}, 3));
  EXPECT_EQ(rig.runner->forwards, 1);
  EXPECT_THAT(rig.run(StepBuilder().finish("a").finish("never seen")).requests, IsEmpty());
  EXPECT_EQ(rig.runner->forwards, 1);
  EXPECT_EQ(rig.worker->num_requests(), 0);
}

TEST(Worker, AMiddleChunkSamplesNothing) {
  Rig rig;
  const StepOutput middle = rig.run(StepBuilder().start("a", tokens_from(0, 9), {1, 2, 3}, 5));
  ASSERT_EQ(middle.requests.size(), 1u);
  EXPECT_EQ(middle.requests[0].id, "a");
  EXPECT_THAT(middle.requests[0].tokens, IsEmpty());
  EXPECT_EQ(rig.run(StepBuilder().go_on("a", 5, 0, 4)).requests[0].tokens.size(), 1u);
}

TEST(Worker, GrammarRowsFollowTheirIdsAndOnlyTheirs) {
  Rig rig;
  GrammarMask mask;
  mask.request_ids = {"c", "a"};
  mask.rows = {{0, 1u << 3, 0, 0}, {1u << 7, 0, 0, 0}};
  const StepOutput out = rig.run(StepBuilder()
                                     .start("a", tokens_from(0, 3), {1}, 3)
                                     .start("b", tokens_from(5, 3), {2}, 3)
                                     .start("c", tokens_from(9, 3), {3}, 3),
                                 &mask);
  Rig plain;
  const StepOutput unmasked = plain.run(StepBuilder().start("b", tokens_from(5, 3), {2}, 3));
  EXPECT_THAT(out.requests[0].tokens, ElementsAre(7));
  EXPECT_EQ(out.requests[1].tokens, unmasked.requests[0].tokens);
  EXPECT_THAT(out.requests[2].tokens, ElementsAre(35));
}

TEST(Worker, AMaskThatDoesNotFitLeavesTheTicketOutstanding) {
  Rig rig;
  const Ticket ticket = rig.worker->execute(StepBuilder().start("a", tokens_from(0, 3), {1}, 3));
  const auto text = [&](const GrammarMask& mask) {
    return error_text(ErrorCode::kInvalidArgument, [&] { rig.worker->sample(ticket, &mask); });
  };
  EXPECT_THAT(text({{"a"}, {}}), HasSubstr("names 1 requests but has 0 rows"));
  EXPECT_THAT(text({{"a"}, {{1, 2, 3}}}), HasSubstr("has 3 words; a vocabulary of 97 has 4"));
  EXPECT_THAT(text({{"z"}, {{1, 2, 3, 4}}}), HasSubstr("'z'"));
  EXPECT_THAT(text({{"a", "a"}, {{1, 2, 3, 4}, {1, 2, 3, 4}}}), HasSubstr("two grammar rows"));
  EXPECT_EQ(rig.worker->sample(ticket).requests[0].tokens.size(), 1u);
}

// ---- One request's trouble stays its own.

struct Trouble {
  const char* name;
  std::function<void(Rig&)> plant;
  const char* message;
  bool masked = false;
};

class OneFails : public ::testing::TestWithParam<Trouble> {};

TEST_P(OneFails, TheOthersGoOnAndTheHostMayHaveScheduledAhead) {
  Rig good, bad;
  GetParam().plant(bad);
  const StepBuilder start =
      StepBuilder().start("a", tokens_from(0, 3), {1, 11}, 3).start("b", tokens_from(5, 3), {2, 12}, 3);
  GrammarMask mask{{"a"}, {{0, 0, 0, 0}}};
  const StepOutput expected = good.run(start);
  const StepOutput first = bad.run(start, GetParam().masked ? &mask : nullptr);
  EXPECT_THAT(first.requests[0].error.value_or(""), HasSubstr(GetParam().message));
  EXPECT_THAT(first.requests[0].tokens, IsEmpty());
  EXPECT_EQ(first.requests[1].error, std::nullopt);
  EXPECT_EQ(first.requests[1].tokens, expected.requests[1].tokens);

  bad.runner->after_forward = nullptr;
  const StepBuilder next = StepBuilder().go_on("a", 3, 1).go_on("b", 3, 1);
  const StepOutput second = bad.run(next);
  EXPECT_EQ(second.requests[0].error, first.requests[0].error);
  EXPECT_EQ(second.requests[1].tokens, good.run(next).requests[1].tokens);
  EXPECT_THAT(bad.run(StepBuilder().finish("a").go_on("b", 4, 2)).requests[0].tokens,
              ElementsAre(good.run(StepBuilder().finish("a").go_on("b", 4, 2)).requests[0].tokens[0]));
  EXPECT_EQ(bad.worker->find("a"), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Worker, OneFails,
                         ::testing::Values(Trouble{"empty_mask", [](Rig&) {}, "grammar mask", true},
                                           Trouble{"nan_logits",
                                                   [](Rig& rig) {
                                                     rig.runner->after_forward = [](const ForwardBatch&,
                                                                                    Logits& logits) {
                                                       logits.values[10] = std::numeric_limits<float>::quiet_NaN();
                                                     };
                                                   },
                                                   "the first is nan at token 10"},
                                           Trouble{
                                               "row_error",
                                               [](Rig& rig) {
                                                 rig.runner->after_forward = [](const ForwardBatch&, Logits& logits) {
                                                   logits.row_errors = {{2, "layer 3: the activation is not finite"}};
                                                 };
                                               },
                                               "layer 3"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Worker, BadSamplingParametersComeOutAsTheRequestsError) {
  Rig rig;
  const StepOutput out = rig.run(StepBuilder()
                                     .start("a", tokens_from(0, 3), {1}, 3, 0, {.temperature = std::nan("")})
                                     .start("b", tokens_from(5, 3), {2}, 3));
  EXPECT_THAT(out.requests[0].error.value_or(""), HasSubstr("temperature is nan"));
  EXPECT_EQ(out.requests[1].tokens.size(), 1u);
}

TEST(Worker, ARowErrorInAMiddleChunkFailsTheRequestForGood) {
  Rig rig;
  rig.runner->after_forward = [](const ForwardBatch&, Logits& logits) { logits.row_errors = {{1, "layer 0"}}; };
  EXPECT_EQ(rig.run(StepBuilder().start("a", tokens_from(0, 9), {1, 2, 3}, 4)).requests[0].error, "layer 0");
  rig.runner->after_forward = nullptr;
  EXPECT_EQ(rig.run(StepBuilder().go_on("a", 4, 0, 5)).requests[0].error, "layer 0");
}

TEST(Worker, AForwardThatThrowsKeepsHistoriesAndMayBeRetried) {
  Rig rig, good;
  rig.run(StepBuilder().start("a", tokens_from(0, 4), {1}, 4));
  good.run(StepBuilder().start("a", tokens_from(0, 4), {1}, 4));
  rig.runner->before_forward = [](const ForwardBatch&) { throw_error(ErrorCode::kUnavailable, "the device is away"); };
  const auto text =
      error_text(ErrorCode::kUnavailable, [&] { rig.worker->execute(StepBuilder().go_on("a", 4, 1, 1, {2})); });
  EXPECT_THAT(text, HasSubstr("away"));
  EXPECT_EQ(rig.worker->find("a")->computed, 4);
  rig.runner->before_forward = nullptr;
  const StepOutput retried = rig.run(StepBuilder().go_on("a", 4, 1));
  EXPECT_EQ(retried.requests[0].tokens, good.run(StepBuilder().go_on("a", 4, 1, 1, {2})).requests[0].tokens);
}

// ---- Two tickets.

TEST(Worker, AStepThatReadsAnUndrawnTokenWaitsForIt) {
  Rig rig, good;
  const StepBuilder first = StepBuilder().start("a", tokens_from(0, 3), {1, 11}, 3);
  const StepBuilder second = StepBuilder().go_on("a", 3, 1).start("b", tokens_from(7, 2), {2}, 2);
  const std::vector<RequestOutput> expected = {good.run(first).requests[0], good.run(second).requests[0]};

  const Ticket t1 = rig.worker->execute(first), t2 = rig.worker->execute(second);
  EXPECT_EQ(rig.runner->forwards, 1);
  EXPECT_EQ(rig.worker->sample(t1).requests[0].tokens, expected[0].tokens);
  const Ticket t3 = rig.worker->execute(StepBuilder().go_on("a", 4, 2).go_on("b", 2, 1));
  EXPECT_EQ(rig.runner->forwards, 2);
  EXPECT_EQ(rig.worker->sample(t2).requests[0].tokens, expected[1].tokens);
  EXPECT_EQ(rig.worker->sample(t3).requests.size(), 2u);
}

TEST(Worker, AStepThatDependsOnNothingRunsAtOnce) {
  Rig rig;
  const Ticket t1 = rig.worker->execute(StepBuilder().start("a", tokens_from(0, 3), {1}, 3));
  const Ticket t2 = rig.worker->execute(StepBuilder().start("b", tokens_from(7, 2), {2}, 2));
  EXPECT_EQ(rig.runner->forwards, 2);
  EXPECT_EQ(rig.worker->sample(t1).requests[0].id, "a");
  EXPECT_EQ(rig.worker->sample(t2).requests[0].id, "b");
}

TEST(Worker, AnAbortBetweenExecuteAndSampleIsSafe) {
  Rig rig;
  const Ticket t1 = rig.worker->execute(StepBuilder().start("a", tokens_from(0, 3), {1}, 3));
  const Ticket t2 = rig.worker->execute(StepBuilder().finish("a").start("a", tokens_from(50, 2), {1}, 2));
  EXPECT_EQ(rig.worker->sample(t1).requests[0].tokens.size(), 1u);
  EXPECT_EQ(rig.worker->find("a")->tokens, tokens_from(50, 2));
  rig.worker->sample(t2);
  EXPECT_EQ(rig.worker->find("a")->tokens.size(), 3u);
}

TEST(Worker, AForwardThatWaitedThrowsWhereItIsSampled) {
  Rig rig;
  const Ticket t1 = rig.worker->execute(StepBuilder().start("a", tokens_from(0, 3), {1}, 3));
  const Ticket t2 = rig.worker->execute(StepBuilder().go_on("a", 3, 1));
  rig.runner->before_forward = [](const ForwardBatch&) { throw_error(ErrorCode::kUnavailable, "the device is away"); };
  EXPECT_EQ(rig.worker->sample(t1).requests[0].tokens.size(), 1u);
  const Ticket t3 = rig.worker->execute({});  // makes the step run; its failure is kept for its own ticket
  error_text(ErrorCode::kUnavailable, [&] { rig.worker->sample(t2); });
  EXPECT_THAT(rig.worker->sample(t3).requests, IsEmpty());
  rig.runner->before_forward = nullptr;
  EXPECT_EQ(rig.worker->find("a")->pending, 0);
  EXPECT_EQ(rig.run(StepBuilder().go_on("a", 3, 1)).requests[0].tokens.size(), 1u);
}

TEST(Worker, ASamplingFailureDoesNotStrandTheStepThatWaits) {
  Rig rig;
  const Ticket t1 = rig.worker->execute(StepBuilder().start("a", tokens_from(0, 3), {1}, 3));
  const Ticket t2 = rig.worker->execute(StepBuilder().go_on("a", 3, 1));
  const GrammarMask mask{{"a"}, {{0, 0, 0, 0}}};
  EXPECT_THAT(rig.worker->sample(t1, &mask).requests[0].error.value_or(""), HasSubstr("grammar"));
  EXPECT_THAT(rig.worker->sample(t2).requests[0].error.value_or(""), HasSubstr("grammar"));
}

// ---- Log-probs.

TEST(Worker, LogprobsAreOfTheRawLogits) {
  Rig rig;
  std::vector<float> row;
  rig.runner->after_forward = [&](const ForwardBatch&, Logits& logits) { row = logits.values; };
  const SamplingParams params{.temperature = 5, .top_k = 40, .seed = 3, .logprobs = 4, .logit_bias = {{7, 3.0f}}};
  const RequestOutput out = rig.run(StepBuilder().start("a", tokens_from(0, 3), {1}, 3, 0, params)).requests[0];
  ASSERT_EQ(out.logprobs.size(), 1u);
  const TokenLogprob expected = token_logprob(row, out.tokens[0], 4);
  EXPECT_EQ(out.logprobs[0].token, out.tokens[0]);
  EXPECT_EQ(out.logprobs[0].logprob, expected.logprob);
  EXPECT_EQ(out.logprobs[0].rank, expected.rank);
  EXPECT_EQ(out.logprobs[0].top, expected.top);
}

TEST(Worker, PromptLogprobsAreTheSameForAnyChunking) {
  const std::vector<int32_t> prompt = tokens_from(11, 13, kVocab);
  const SamplingParams params{.temperature = 0, .prompt_logprobs = 3};
  std::vector<std::vector<TokenLogprob>> runs;
  for (const int64_t chunk : {13, 12, 6, 5, 1}) {
    Rig rig;
    std::vector<TokenLogprob> all;
    for (int64_t at = 0; at < 13; at += chunk) {
      const int64_t n = std::min(chunk, 13 - at);
      const StepOutput out = rig.run(at == 0 ? StepBuilder().start("a", prompt, {1, 2, 3, 4}, n, 0, params)
                                             : StepBuilder().go_on("a", at, 0, n));
      EXPECT_EQ(out.requests[0].prompt_logprobs_start, out.requests[0].prompt_logprobs.empty() ? 0 : at + 1);
      for (const TokenLogprob& logprob : out.requests[0].prompt_logprobs) all.push_back(logprob);
    }
    ASSERT_EQ(all.size(), 12u) << chunk;  // position 0 has none
    for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i].token, prompt[i + 1]);
    runs.push_back(all);
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i].logprob, runs[0][i].logprob) << chunk << " " << i;
      EXPECT_EQ(all[i].top, runs[0][i].top) << chunk << " " << i;
    }
  }
}

// ---- Edits, and rows dealt to threads.

// The raw row stays what it was: log-probs are of it, and a second request may be drawn from its neighbour.
TEST(Worker, PenaltiesFollowTheHistoryThroughAResume) {
  const SamplingParams plain{.temperature = 0, .logprobs = 0};
  SamplingParams params = plain;
  params.presence_penalty = 2;
  params.frequency_penalty = 2;
  params.repetition_penalty = 3;
  const std::vector<int32_t> prompt = tokens_from(3, 5, kVocab);
  const auto answer = [&](const SamplingParams& sampling, int64_t preempt_at) {
    Rig rig;
    std::vector<std::pair<int32_t, float>> tokens;
    std::vector<int32_t> history = prompt;
    for (int64_t i = 0; i < 12; ++i) {
      StepBuilder step;
      if (i == 0) {
        step.start("a", prompt, {1, 2, 3, 4, 5}, 5, 0, sampling);
      } else if (i == preempt_at) {
        rig.run(StepBuilder().preempt("a"));
        step.resume("a", history, {9, 8, 7, 6, 5}, 0, i, std::ssize(history));
      } else {
        step.go_on("a", std::ssize(history) - 1, i);
      }
      const RequestOutput out = rig.run(step).requests[0];
      tokens.emplace_back(out.tokens[0], out.logprobs[0].logprob);
      history.push_back(out.tokens[0]);
    }
    return tokens;
  };
  const auto whole = answer(params, -1);
  EXPECT_EQ(answer(params, 6), whole);
  EXPECT_NE(answer(plain, -1), whole);
}

TEST(Worker, NothingLeftToDrawFailsTheRequestAlone) {
  Rig rig;
  const SamplingParams empty{.min_tokens = 1, .eos_token_ids = {4}, .allowed_token_ids = std::vector<int32_t>{4}};
  const StepOutput out =
      rig.run(StepBuilder().start("a", tokens_from(0, 3), {1}, 3, 0, empty).start("b", tokens_from(0, 3), {2}, 3));
  EXPECT_THAT(out.requests[0].error.value_or(""), HasSubstr("min_tokens leave none"));
  EXPECT_FALSE(out.requests[1].error);
  EXPECT_EQ(out.requests[1].tokens.size(), 1u);
}

// An echo runner that has a team.
class TeamRunner final : public ModelRunner {
 public:
  explicit TeamRunner(int threads) : echo_(model(), EchoRunner::Output::kLogits, 4), team_(threads) {}
  void load_model(const std::function<void(const LoadProgress&)>& progress) override { echo_.load_model(progress); }
  int64_t vocab_size() const override { return echo_.vocab_size(); }
  KvCacheSpec kv_cache_spec() const override { return echo_.kv_cache_spec(); }
  void initialize_kv_cache(int64_t num_blocks) override { echo_.initialize_kv_cache(num_blocks); }
  WarmUpReport warm_up() override { return echo_.warm_up(); }
  void forward(const ForwardBatch& batch, Logits& logits) override { echo_.forward(batch, logits); }
  void copy_block(int32_t from, int32_t to) override { echo_.copy_block(from, to); }
  void zero_block(int32_t block) override { echo_.zero_block(block); }
  ThreadTeam* thread_team() override { return &team_; }
  nlohmann::json report(const std::string& topic) const override { return echo_.report(topic); }

  EchoRunner& echo() { return echo_; }

 private:
  EchoRunner echo_;
  ThreadTeam team_;
};

TEST(Worker, AnyNumberOfThreadsSamplesTheSame) {
  std::vector<std::vector<std::vector<int32_t>>> answers;
  for (const int threads : {1, 2, 5}) {
    auto runner = std::make_unique<TeamRunner>(threads);
    EchoRunner& echo = runner->echo();
    Worker worker(std::move(runner), {.max_model_len = 64, .max_num_batched_tokens = 64, .max_num_seqs = 8});
    worker.load_model();
    worker.initialize_kv_cache(40);
    StepBuilder first;
    for (int32_t i = 0; i < 8; ++i) {
      SamplingParams params{.temperature = 1.2, .top_p = 0.9, .seed = uint64_t(i), .logprobs = 3};
      if (i % 2 == 1) params.frequency_penalty = 1;
      first.start(std::to_string(i), tokens_from(i * 5, 3, kVocab), {1 + 4 * i, 2 + 4 * i}, 3, 0, params);
    }
    auto& answer = answers.emplace_back(8);
    for (int64_t at = 0; at < 4; ++at) {
      StepBuilder next;
      for (int32_t i = 0; i < 8; ++i) next.go_on(std::to_string(i), 2 + at, at);
      // One row of the last step is bad: its request alone fails, whoever sampled it.
      if (at == 3) {
        echo.after_forward = [](const ForwardBatch&, Logits& logits) { logits.values[5 * kVocab] = NAN; };
      }
      const StepOutput out = worker.sample(worker.execute(at == 0 ? first : next));
      for (int32_t i = 0; i < 8; ++i) {
        EXPECT_EQ(out.requests[i].id, std::to_string(i));
        EXPECT_EQ(out.requests[i].error.has_value(), at == 3 && i == 5);
        if (!out.requests[i].error) answer[i].push_back(out.requests[i].tokens.at(0));
      }
    }
    EXPECT_EQ(answer, answers[0]) << threads << " threads";
  }
}

// ---- Block work.

TEST(Worker, ZeroesThenCopiesThenRuns) {
  Rig rig, good;
  const std::vector<int32_t> prompt = tokens_from(3, 4);
  good.run(StepBuilder().start("a", prompt, {1}, 4));
  rig.run(StepBuilder().start("a", prompt, {1}, 4));
  // The first block is copied to 9 and zeroed block 9 is overwritten by it: a resume on the copy sees the same context.
  std::vector<int32_t> history = rig.worker->find("a")->tokens;
  StepBuilder step = StepBuilder().resume("a", history, {9, 2}, 4, 1, 1);
  step.step.blocks_to_zero = {9};
  step.step.block_copies = {{1, 9}};
  EXPECT_EQ(rig.run(step).requests[0].tokens, good.run(StepBuilder().go_on("a", 4, 1, 1, {2})).requests[0].tokens);
}

// ---- The promise: what else is in the batch, the chunking, preemption and the blocks used do not change a bit.

// A careless scheduler: random chunks, random preemption, random blocks out of a pool full of strangers' leavings.
class RandomSchedule {
 public:
  RandomSchedule(uint32_t seed, std::map<RequestId, std::pair<std::vector<int32_t>, SamplingParams>> requests)
      : engine_(seed), requests_(std::move(requests)) {
    for (int32_t b = 1; b < 64; ++b) free_.push_back(b);
    std::shuffle(free_.begin(), free_.end(), engine_);
  }

  std::map<RequestId, std::vector<int32_t>> run(int64_t max_tokens) {
    Rig rig(64, 4);
    Step step;
    while (!requests_.empty() || !live_.empty()) {
      const StepOutput out = rig.run(next_step(rig));
      for (const RequestOutput& request : out.requests) {
        Live& live = live_.at(request.id);
        for (const int32_t token : request.tokens) outputs_[request.id].push_back(token);
        live.known += std::ssize(request.tokens);
        EXPECT_EQ(request.error, std::nullopt);
        if (std::ssize(outputs_[request.id]) == max_tokens) {
          release(live);
          live_.erase(request.id);
          finished_.push_back(request.id);
        }
      }
    }
    return outputs_;
  }

 private:
  struct Live {
    int64_t known = 0, computed = 0, prompt = 0;
    bool preempted = false;
    std::vector<int32_t> blocks;
  };

  int64_t pick(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }
  void release(Live& live) {
    for (const int32_t b : live.blocks) free_.insert(free_.begin() + pick(0, std::ssize(free_)), b);
    live.blocks.clear();
  }
  std::vector<int32_t> take_blocks(Live& live, int64_t tokens) {
    std::vector<int32_t> added;
    while (std::ssize(live.blocks) * 4 < tokens) {
      added.push_back(free_.back());
      live.blocks.push_back(free_.back());
      free_.pop_back();
    }
    return added;
  }

  Step next_step(Rig& rig) {
    StepBuilder step;
    step.step.finished = std::exchange(finished_, {});
    for (auto& [id, live] : live_) {
      if (!live.preempted && pick(0, 9) == 0) {
        step.preempt(id);
        release(live);
        live.preempted = true;
        live.computed = 0;
        continue;
      }
      if (pick(0, 3) == 0) continue;
      const int64_t tokens = pick(1, std::min<int64_t>(live.known - live.computed, 8));
      const std::vector<int32_t> added = take_blocks(live, live.computed + tokens);
      const int64_t outputs = live.known - live.prompt;
      if (live.preempted) {
        step.resume(id, rig.worker->find(id)->tokens, live.blocks, 0, outputs, tokens);
        live.preempted = false;
      } else {
        step.go_on(id, live.computed, outputs, tokens, added);
      }
      live.computed += tokens;
    }
    if (!requests_.empty() && live_.size() < 5 && pick(0, 1) == 0) {
      const auto first = requests_.begin();
      const auto& [prompt, params] = first->second;
      Live live{.known = std::ssize(prompt), .prompt = std::ssize(prompt)};
      const int64_t tokens = pick(1, live.known);
      take_blocks(live, tokens);
      step.start(first->first, prompt, live.blocks, tokens, 0, params);
      live.computed = tokens;
      live_[first->first] = live;
      requests_.erase(first);
    }
    return step;
  }

  std::mt19937 engine_;
  std::map<RequestId, std::pair<std::vector<int32_t>, SamplingParams>> requests_;
  std::map<RequestId, Live> live_;
  std::vector<int32_t> free_;
  std::vector<RequestId> finished_;
  std::map<RequestId, std::vector<int32_t>> outputs_;
};

TEST(Worker, TokensDoNotDependOnTheSchedule) {
  std::map<RequestId, std::pair<std::vector<int32_t>, SamplingParams>> requests;
  for (int i = 0; i < 9; ++i) {
    SamplingParams params{.temperature = i % 3 == 0 ? 0.0 : 0.8};
    if (i % 3 == 1) params.seed = 100 + i;
    if (i % 3 == 2) params.top_p = 0.9;
    requests["r" + std::to_string(i)] = {tokens_from(i * 13, 3 + 4 * i, kVocab), params};
  }
  std::map<RequestId, std::vector<int32_t>> alone;
  for (const auto& [id, request] : requests) {
    alone[id] = RandomSchedule(0, {{id, request}}).run(12)[id];
    ASSERT_EQ(alone[id].size(), 12u);
  }
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(RandomSchedule(seed, requests).run(12), alone) << "seed " << seed;
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace spyre::runner
