// The hosted worker over the chain model (runner/testing/chain_runner.h), which checks every context and answers the
// last token plus 1: what goes wrong in a step, and what it must not spoil.
#include "platform/hosted_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/error.h"
#include "base/team.h"
#include "platform/limits.h"
#include "platform/platform.h"
#include "runner/testing/chain_runner.h"
#include "runner/testing/steps.h"
#include "runner/testing/vllm_trace.h"

namespace spyre::platform {
namespace {

using runner::GrammarMask;
using runner::RequestId;
using runner::SamplingParams;
using runner::Step;
using runner::testing::ChainRunner;
using runner::testing::StepBuilder;
using runner::testing::tokens_from;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr int32_t kVocab = 320;

class ChainPlatform final : public Platform {
 public:
  std::string name() const override { return "chain"; }
  std::string description() const override { return "for tests"; }
  void check_and_update_config(EngineConfig& config, const formats::ModelConfig& model) const override {
    complete_lengths(config, model, 16);
  }
  std::unique_ptr<runner::ModelRunner> create_model_runner(
      const EngineConfig& config, std::shared_ptr<const formats::Checkpoint> /*checkpoint*/) const override {
    auto made =
        std::make_unique<ChainRunner>(ChainRunner::Shape{.vocab_size = kVocab, .block_size = *config.block_size});
    runner = made.get();
    if (with_team) team = std::make_unique<ThreadTeam>(3);
    return made;
  }
  bool with_team = false;
  mutable ChainRunner* runner = nullptr;
  mutable std::unique_ptr<ThreadTeam> team;  // as a device has one
};

EngineConfig config() {
  return {.model = SPYRE_GOLDEN_DATA "/llama_gqa64", .max_model_len = 256, .max_num_seqs = 8, .num_kv_blocks = 40};
}

class HostedWorkerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    worker_.load_model();
    worker_.initialize_kv_cache(40);
    worker_.warm_up();
  }

  HostedOutput run(const Step& step, const GrammarMask* mask = nullptr) {
    EXPECT_TRUE(worker_.execute(step));
    HostedOutput output = worker_.sample(mask);
    EXPECT_EQ(output.ids.size(), step.num_scheduled_tokens.size());
    EXPECT_EQ(output.tokens.size(), output.ids.size());
    for (size_t i = 0; i < output.ids.size(); ++i) EXPECT_EQ(output.ids[i], step.num_scheduled_tokens[i].first);
    return output;
  }
  // By id: "17" for a token, "" for none, the message for an error.
  std::map<RequestId, std::string> answers(const Step& step, const GrammarMask* mask = nullptr) {
    const HostedOutput output = run(step, mask);
    std::map<RequestId, std::string> result;
    for (size_t i = 0; i < output.ids.size(); ++i) {
      result[output.ids[i]] = output.tokens[i].empty() ? "" : std::to_string(output.tokens[i].front());
    }
    for (const auto& [id, message] : output.errors) {
      EXPECT_EQ(result.at(id), "") << "a token and an error: " << message;
      EXPECT_EQ(message.find('\n'), std::string::npos);
      result[id] = message;
    }
    return result;
  }
  ChainRunner& runner() { return *platform_.runner; }
  void throw_in_next_forward(const std::string& message) {
    runner().before_forward = [message, at = runner().forwards + 1, this](const runner::ForwardBatch&) {
      if (runner().forwards == at) throw std::runtime_error(message);
    };
  }
  int64_t steps(const char* what) { return worker_.report("steps").at(what).get<int64_t>(); }

  ChainPlatform platform_;
  HostedWorker worker_{platform_, config()};
};

// ---------------------------------------------------------------- stages

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(HostedWorkerStages, OutOfOrderIsRefusedByName) {
  const ChainPlatform platform;
  HostedWorker worker(platform, config());
  const Step step = StepBuilder().start("a", tokens_from(5, 3), {1}, 3);
  EXPECT_EQ(worker.vocab_size(), 307);  // of config.json
  EXPECT_EQ(worker.config().block_size, 16);
  EXPECT_EQ(worker.num_requests(), 0);
  EXPECT_TRUE(worker.report("forwards").is_null());
  EXPECT_EQ(refusal([&] { worker.kv_cache_spec(); }), "kv_cache_spec: load_model comes first");
  EXPECT_EQ(refusal([&] { worker.initialize_kv_cache(4); }), "initialize_kv_cache: load_model comes first");
  worker.load_model();
  EXPECT_EQ(worker.vocab_size(), kVocab);
  EXPECT_THAT(refusal([&] { worker.load_model(); }), HasSubstr("loaded already"));
  EXPECT_EQ(refusal([&] { worker.warm_up(); }), "warm_up: initialize_kv_cache comes first");
  worker.initialize_kv_cache(4);
  EXPECT_EQ(refusal([&] { worker.execute(step); }), "execute: warm_up comes first");
  worker.warm_up();
  EXPECT_EQ(refusal([&] { worker.sample(); }), "sample: execute comes first");
  EXPECT_TRUE(worker.execute(step));
  EXPECT_THAT(refusal([&] { worker.execute(step); }), HasSubstr("still to be sampled"));
  EXPECT_THAT(refusal([&] { worker.initialize_kv_cache(4); }), HasSubstr("still to be sampled"));
  EXPECT_THAT(worker.sample().tokens, ElementsAre(ElementsAre(8)));
  EXPECT_EQ(refusal([&] { worker.sample(); }), "sample: execute comes first");
  worker.initialize_kv_cache(5);  // anew: everything is forgotten
  EXPECT_EQ(worker.num_requests(), 0);
  EXPECT_EQ(refusal([&] { worker.execute(step); }), "execute: warm_up comes first");
}

TEST(HostedWorkerStages, KvCacheBytesAreWholeBlocksWithTheirArithmetic) {
  const ChainPlatform platform;
  HostedWorker worker(platform, config());
  worker.load_model();
  std::string arithmetic;
  EXPECT_EQ(worker.kv_cache_bytes(&arithmetic), 40 * 4096);
  EXPECT_THAT(arithmetic, HasSubstr("40 blocks of 16 tokens x 4096 bytes"));
  EXPECT_EQ(worker.kv_cache_spec().bytes_per_block, 4096);
}

TEST(HostedWorkerStages, NoThreadBeforeTheModelIsLoaded) {
  const auto threads = [] {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  };
  ChainPlatform platform;
  platform.with_team = true;
  const auto before = threads();
  HostedWorker worker(platform, config());
  EXPECT_EQ(threads(), before);
  worker.load_model();
  EXPECT_EQ(threads(), before + 2);
}

// ---------------------------------------------------------------- recorded traces

class HostedTrace : public HostedWorkerTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(HostedTrace, GivesTheRecordedTokens) {
  const runner::testing::Trace trace =
      runner::testing::read_trace(std::string(SPYRE_TEST_DATA "/vllm_traces/") + GetParam() + ".jsonl");
  ASSERT_EQ(trace.vocab_size, kVocab);
  HostedWorker worker(platform_, {.model = config().model,
                                  .max_model_len = trace.max_model_len,
                                  .block_size = trace.block_size,
                                  .max_num_seqs = trace.max_num_seqs,
                                  .max_num_batched_tokens = trace.max_num_batched_tokens});
  worker.load_model();
  worker.initialize_kv_cache(trace.num_blocks);
  worker.warm_up();
  int64_t tokens = 0;
  for (size_t k = 0; k < trace.steps.size() && !HasFailure(); ++k) {
    SCOPED_TRACE("step " + std::to_string(k));
    Step step = trace.steps[k].step;
    for (runner::NewRequest& request : step.new_requests) request.sampling.temperature = 0;  // the rule of the traces
    tokens += step.total_tokens();
    ASSERT_EQ(worker.execute(step), trace.steps[k].has_output);
    if (!trace.steps[k].has_output) continue;
    const HostedOutput output = worker.sample(trace.steps[k].mask ? &*trace.steps[k].mask : nullptr);
    EXPECT_EQ(output.ids, trace.steps[k].sampled_ids);
    EXPECT_EQ(output.tokens, trace.steps[k].sampled_tokens);
    EXPECT_THAT(output.errors, IsEmpty());
    EXPECT_FALSE(output.logprobs);
  }
  EXPECT_EQ(worker.num_requests(), 0);
  const nlohmann::json report = worker.report("steps");
  EXPECT_EQ(report["steps"], trace.steps.size());
  EXPECT_EQ(report["tokens"], tokens);
  EXPECT_EQ(report["failed_steps"], 0);
  EXPECT_GT(report["execute_seconds"].get<double>(), 0);
  EXPECT_GT(report["sample_seconds"].get<double>(), 0);
  EXPECT_GE(worker.report("echo")["verified_positions"].get<int64_t>(), tokens);
}

INSTANTIATE_TEST_SUITE_P(Recorded, HostedTrace,
                         ::testing::Values("mixed_v1", "mixed_v2", "preempt_v1", "preempt_v1_async", "preempt_v2",
                                           "preempt_v2_async", "prefix_v1", "prefix_v2", "structured_v1",
                                           "structured_v1_async", "structured_v2", "structured_v2_async"),
                         [](const auto& info) { return std::string(info.param); });

// ---------------------------------------------------------------- failed steps

TEST_F(HostedWorkerTest, AForwardPassThatThrowsEndsItsStepAlone) {
  answers(StepBuilder().start("a", tokens_from(10, 4), {1}, 4).start("b", tokens_from(50, 4), {2}, 4));
  throw_in_next_forward("the card\nis gone");
  EXPECT_THAT(
      answers(StepBuilder().go_on("a", 4, 1).start("c", tokens_from(90, 20), {3, 4}, 20)),
      ElementsAre(Pair("a", "the step failed: the card is gone"), Pair("c", "the step failed: the card is gone")));
  EXPECT_EQ(worker_.num_requests(), 3);
  EXPECT_EQ(steps("failed_steps"), 1);
  EXPECT_THAT(answers(StepBuilder().finish("a").finish("c").go_on("b", 4, 1).start("d", tokens_from(7, 3), {1}, 3)),
              ElementsAre(Pair("b", "55"), Pair("d", "10")));
  EXPECT_EQ(worker_.num_requests(), 2);
  // An id that failed may come again once it is finished.
  EXPECT_THAT(answers(StepBuilder().go_on("d", 3, 1).start("a", tokens_from(30, 2), {3}, 2)),
              ElementsAre(Pair("a", "32"), Pair("d", "11")));
  EXPECT_FALSE(worker_.execute(StepBuilder().finish("a").finish("b").finish("d")));
  EXPECT_EQ(worker_.num_requests(), 0);
}

// Any exception, at any place: here a runner that breaks its own contract.
TEST_F(HostedWorkerTest, OurOwnBugEndsTheStepAlone) {
  runner().after_forward = [](const runner::ForwardBatch&, runner::Logits& logits) { logits.vocab_size = 7; };
  EXPECT_THAT(answers(StepBuilder().start("a", tokens_from(10, 4), {1}, 4))["a"], HasSubstr("the step failed: "));
  runner().after_forward = [](const runner::ForwardBatch&, runner::Logits&) { throw 7; };
  EXPECT_THAT(answers(StepBuilder().start("b", tokens_from(10, 4), {2}, 4))["b"], HasSubstr("no std::exception"));
  runner().after_forward = nullptr;
  EXPECT_THAT(answers(StepBuilder().finish("a").finish("b").start("c", tokens_from(10, 4), {1}, 4)),
              ElementsAre(Pair("c", "14")));
}

// The host was two steps ahead: it had scheduled the failed requests again, as if they had run, beside others.
TEST_F(HostedWorkerTest, WhatWasScheduledAheadGivesItsErrorAgain) {
  answers(StepBuilder().start("a", tokens_from(10, 4), {1}, 4).start("b", tokens_from(50, 40), {2, 3}, 20));
  throw_in_next_forward("flood");
  const std::string error = "the step failed: flood";
  EXPECT_THAT(answers(StepBuilder().go_on("a", 4, 1).go_on("b", 20, 0, 12)),
              ElementsAre(Pair("a", error), Pair("b", error)));
  EXPECT_THAT(answers(StepBuilder().go_on("a", 5, 2).go_on("b", 32, 0, 8, {4}).start("c", tokens_from(90, 5), {5}, 5)),
              ElementsAre(Pair("a", error), Pair("b", error), Pair("c", "95")));
  // Preempted, resumed by either contract, and alone in a step: the same error until it is finished.
  EXPECT_THAT(answers(StepBuilder().preempt("a").preempt("b").go_on("c", 5, 1)), ElementsAre(Pair("c", "96")));
  EXPECT_THAT(answers(StepBuilder()
                          .start("a", tokens_from(10, 4), {6}, 4)
                          .resume("b", tokens_from(50, 40), {7, 8, 9}, 0, 0, 40)
                          .go_on("c", 6, 2)),
              ElementsAre(Pair("a", error), Pair("b", error), Pair("c", "97")));
  EXPECT_THAT(answers(StepBuilder().go_on("a", 4, 1)), ElementsAre(Pair("a", error)));
  EXPECT_EQ(worker_.num_requests(), 3);
  EXPECT_EQ(steps("failed_steps"), 1);
  EXPECT_THAT(answers(StepBuilder().finish("a").finish("b").go_on("c", 7, 3)), ElementsAre(Pair("c", "98")));
  EXPECT_EQ(worker_.num_requests(), 1);
}

TEST_F(HostedWorkerTest, AStepThatContradictsItselfIsRefusedAsAWhole) {
  answers(StepBuilder()
              .start("a", tokens_from(10, 4), {1}, 4)
              .start("b", tokens_from(50, 4), {2}, 4)
              .start("gone", tokens_from(1, 3), {3}, 3)
              .start("spared", tokens_from(70, 3), {4}, 3));
  const auto refused =
      answers(StepBuilder().finish("gone").go_on("a", 4, 1).go_on("b", 9, 1).start("new", tokens_from(20, 4), {5}, 4));
  const std::string error = "the step failed: request 'b': num_computed_tokens is 9, but 4 are computed";
  EXPECT_THAT(refused, ElementsAre(Pair("a", error), Pair("b", error), Pair("new", error)));
  EXPECT_EQ(worker_.num_requests(), 4);  // "gone" is, although nothing of the step was applied
  EXPECT_EQ(steps("failed_steps"), 1);
  // "new" was never known to the worker; "spared" goes on.
  EXPECT_THAT(answers(StepBuilder().go_on("new", 4, 1).go_on("spared", 3, 1)),
              ElementsAre(Pair("new", error), Pair("spared", "74")));
  EXPECT_THAT(answers(StepBuilder()
                          .finish("a")
                          .finish("b")
                          .finish("new")
                          .go_on("spared", 4, 2)
                          .start("gone", tokens_from(30, 3), {3}, 3)),
              ElementsAre(Pair("gone", "33"), Pair("spared", "75")));
  EXPECT_EQ(worker_.num_requests(), 2);
}

TEST_F(HostedWorkerTest, AnUnknownRequestEndsAlone) {
  answers(StepBuilder().start("a", tokens_from(10, 4), {1}, 4).start("b", tokens_from(50, 4), {2}, 4));
  const std::string error = "request 'x': is scheduled as known, but it is not known to the worker";
  EXPECT_THAT(answers(StepBuilder().preempt("y").go_on("x", 5, 2).go_on("a", 4, 1)),
              ElementsAre(Pair("a", "15"), Pair("x", error)));
  // Finished ids go first: what is finished is no longer known in the same step.
  EXPECT_THAT(answers(StepBuilder().finish("b").go_on("b", 4, 1).go_on("a", 5, 2))["b"], HasSubstr("is not known"));
  EXPECT_EQ(steps("failed_steps"), 0);
  EXPECT_FALSE(worker_.execute(StepBuilder().finish("x").finish("b").finish("a")));
  EXPECT_EQ(worker_.num_requests(), 0);
}

// What the host said of a request could not be read: of its entry, what is there tells which blocks it leaves
// unwritten.
TEST_F(HostedWorkerTest, WhatTheHostCouldNotSayIsRefusedAlone) {
  const std::vector<int32_t> prompt = tokens_from(10, 40);
  answers(StepBuilder().start("a", prompt, {1, 2, 3}, 40));
  StepBuilder step;
  step.start("bad", {}, {1, 4, 5}, 24, 16)
      .start("heir", prompt, {1, 4, 6}, 8, 32)
      .start("sound", prompt, {1, 7, 8}, 24, 16);
  EXPECT_TRUE(worker_.execute(step.go_on("a", 40, 1), {{"bad", "lora_request is not built"}}));
  const HostedOutput output = worker_.sample();
  EXPECT_THAT(output.errors, ElementsAre(Pair("bad", "lora_request is not built"), Pair("heir", HasSubstr("block 4"))));
  EXPECT_THAT(output.tokens, ElementsAre(IsEmpty(), IsEmpty(), ElementsAre(50), ElementsAre(51)));
  EXPECT_EQ(steps("failed_steps"), 0);
  EXPECT_THAT(answers(StepBuilder().go_on("bad", 40, 1).go_on("a", 41, 2)),
              ElementsAre(Pair("a", "52"), Pair("bad", "lora_request is not built")));
  EXPECT_FALSE(worker_.execute(StepBuilder().finish("a").finish("bad").finish("heir").finish("sound")));
  EXPECT_EQ(worker_.num_requests(), 0);
}

TEST_F(HostedWorkerTest, AStepWithoutTokensIsDoneAtOnce) {
  EXPECT_FALSE(worker_.execute(Step()));
  Step bad;  // and so is one that is refused
  bad.blocks_to_zero = {1000};
  EXPECT_FALSE(worker_.execute(bad));
  EXPECT_EQ(steps("steps"), 2);
  EXPECT_EQ(steps("failed_steps"), 1);
  EXPECT_THAT(answers(StepBuilder().start("a", tokens_from(10, 4), {1}, 4)), ElementsAre(Pair("a", "14")));
}

// A scheduler counts a prompt's full blocks as cached when it schedules them. Those of a failed step were not written,
// and what was in them before is not the prefix that a newcomer is promised.
TEST_F(HostedWorkerTest, BlocksThatAFailedStepLeftUnwrittenAreNotRead) {
  const std::vector<int32_t> prompt = tokens_from(10, 70);
  answers(StepBuilder().start("a", prompt, {1, 2, 3, 4, 5}, 32));
  throw_in_next_forward("flood");
  answers(StepBuilder().go_on("a", 32, 0, 16));
  // Ahead: "a" would have written block 4. "b" is promised 3 and "c" 4; "d" is promised 9, which "c" was to write, and
  // "copy" a copy of 3. "e" and "good" have their prefixes where "a" had really written.
  StepBuilder step;
  step.step.block_copies = {{3, 17}, {2, 20}};
  const auto ahead = answers(step.start("b", prompt, {1, 2, 3, 6, 7}, 22, 48)
                                 .start("c", prompt, {1, 2, 8, 4, 9}, 6, 64)
                                 .start("d", tokens_from(10, 81), {1, 2, 15, 16, 9, 11}, 1, 80)
                                 .start("e", prompt, {1, 2, 12, 13, 14}, 38, 32)
                                 .start("copy", prompt, {1, 2, 17, 18, 19}, 27, 43)
                                 .start("good", prompt, {1, 20, 21, 22, 23}, 43, 27)
                                 .go_on("a", 48, 0, 16));
  EXPECT_THAT(ahead.at("a"), HasSubstr("flood"));
  EXPECT_THAT(ahead.at("b"), HasSubstr("request 'b': its prefix lies in block 3"));
  EXPECT_THAT(ahead.at("c"), HasSubstr("block 4"));
  EXPECT_THAT(ahead.at("d"), HasSubstr("block 9"));
  EXPECT_THAT(ahead.at("copy"), HasSubstr("block 17"));
  EXPECT_EQ(ahead.at("e"), "80");
  EXPECT_EQ(ahead.at("good"), "80");
  // Written anew, in this step or an earlier one, they are as good as any.
  EXPECT_THAT(answers(StepBuilder()
                          .finish("a")
                          .finish("b")
                          .finish("c")
                          .finish("d")
                          .finish("copy")
                          .start("f", tokens_from(200, 20), {3, 4}, 20)
                          .start("g", tokens_from(200, 20), {3, 5}, 4, 16)),
              ElementsAre(Pair("f", "220"), Pair("g", "220")));
  EXPECT_THAT(answers(StepBuilder().start("h", tokens_from(200, 17), {3, 6}, 1, 16)), ElementsAre(Pair("h", "217")));
}

// ---------------------------------------------------------------- a request's own trouble

TEST_F(HostedWorkerTest, NonFiniteLogitsEndOneRequest) {
  runner().after_forward = [this](const runner::ForwardBatch&, runner::Logits& logits) {
    if (runner().forwards == 1) logits.values[kVocab + 3] = std::numeric_limits<float>::quiet_NaN();
  };
  const auto first =
      answers(StepBuilder().start("a", tokens_from(10, 4), {1}, 4).start("b", tokens_from(50, 4), {2}, 4));
  EXPECT_EQ(first.at("a"), "14");
  EXPECT_THAT(first.at("b"), HasSubstr("1 of 320 logits are not finite; the first is nan at token 3"));
  const auto second = answers(StepBuilder().go_on("a", 4, 1).go_on("b", 4, 1));
  EXPECT_EQ(second.at("a"), "15");
  EXPECT_EQ(second.at("b"), first.at("b"));
  EXPECT_EQ(steps("failed_steps"), 0);
}

GrammarMask mask_of(const std::vector<std::pair<RequestId, std::vector<int32_t>>>& allowed) {
  GrammarMask mask;
  for (const auto& [id, tokens] : allowed) {
    mask.request_ids.push_back(id);
    std::vector<uint32_t>& row = mask.rows.emplace_back((kVocab + 31) / 32, 0);
    for (const int32_t token : tokens) row[token / 32] |= 1u << (token % 32);
  }
  return mask;
}

TEST_F(HostedWorkerTest, AMaskThatDoesNotFitEndsThoseItNames) {
  answers(StepBuilder()
              .start("a", tokens_from(10, 4), {1}, 4)
              .start("b", tokens_from(50, 4), {2}, 4)
              .start("c", tokens_from(90, 4), {3}, 4));
  GrammarMask mask = mask_of({{"b", {7}}, {"a", {8}}});
  mask.rows[0].pop_back();
  const std::string error = "request 'b': its grammar row has 9 words; a vocabulary of 320 has 10";
  EXPECT_THAT(answers(StepBuilder().go_on("a", 4, 1).go_on("b", 4, 1).go_on("c", 4, 1), &mask),
              ElementsAre(Pair("a", error), Pair("b", error), Pair("c", "95")));
  EXPECT_EQ(worker_.num_requests(), 3);
  EXPECT_EQ(steps("failed_steps"), 0);
  // Scheduled ahead, with the rows of their grammar: these are not read any more.
  mask = mask_of({{"b", {7}}, {"c", {7}}, {"a", {8}}});
  EXPECT_THAT(answers(StepBuilder().go_on("a", 5, 2).go_on("b", 5, 2).go_on("c", 5, 2), &mask),
              ElementsAre(Pair("a", error), Pair("b", error), Pair("c", "7")));
  EXPECT_THAT(answers(StepBuilder().finish("a").finish("b").go_on("c", 6, 3)), ElementsAre(Pair("c", "8")));
}

TEST_F(HostedWorkerTest, AMaskForNobodyHereEndsThoseItNames) {
  const GrammarMask mask = mask_of({{"stranger", {7}}, {"a", {8}}});
  const auto output =
      answers(StepBuilder().start("a", tokens_from(10, 4), {1}, 4).start("b", tokens_from(50, 4), {2}, 4), &mask);
  EXPECT_THAT(output.at("a"), HasSubstr("request 'stranger': has a grammar row but is not scheduled"));
  EXPECT_EQ(output.at("b"), "54");
  EXPECT_FALSE(worker_.execute(StepBuilder().finish("a").finish("b")));
  EXPECT_EQ(worker_.num_requests(), 0);
}

TEST_F(HostedWorkerTest, TheMaskOfAFailedStepIsNotRead) {
  throw_in_next_forward("flood");
  const GrammarMask mask = mask_of({{"stranger", {7}}});
  EXPECT_THAT(answers(StepBuilder().start("a", tokens_from(10, 4), {1}, 4), &mask)["a"], HasSubstr("flood"));
}

// ---------------------------------------------------------------- log-probs

TEST_F(HostedWorkerTest, LogprobsStandSideBySide) {
  const HostedOutput output =
      run(StepBuilder()
              .start("two", tokens_from(10, 4), {1}, 4, 0, {.temperature = 0, .logprobs = 2})
              .start("none", tokens_from(50, 4), {2}, 4)
              .start("middle", tokens_from(90, 20), {3, 4}, 5, 0, {.temperature = 0, .logprobs = 9})
              .start("zero", tokens_from(70, 4), {5}, 4, 0, {.temperature = 0, .logprobs = 0}));
  ASSERT_TRUE(output.logprobs);
  const LogprobTable& table = *output.logprobs;
  ASSERT_EQ(table.rows, 4);
  ASSERT_EQ(table.width, 3);
  EXPECT_THAT(table.token_ids, ElementsAre(14, 14, 15, 0, 0, 0, 0, 0, 0, 74, 0, 0));
  EXPECT_THAT(table.ranks, ElementsAre(1, 0, 0, 1));
  const float nothing = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(table.logprobs[0], table.logprobs[1]);
  EXPECT_LT(table.logprobs[2], table.logprobs[1]);
  for (const int cell : {3, 4, 5, 6, 7, 8, 10, 11}) EXPECT_EQ(table.logprobs[cell], nothing) << cell;
  EXPECT_GT(table.logprobs[9], -2);
  EXPECT_FALSE(run(StepBuilder().go_on("none", 4, 1)).logprobs);
}

TEST_F(HostedWorkerTest, LogprobsOfTheWholeVocabulary) {
  const HostedOutput output =
      run(StepBuilder().start("all", tokens_from(10, 4), {1}, 4, 0, {.temperature = 0, .logprobs = -1}));
  ASSERT_TRUE(output.logprobs);
  ASSERT_EQ(output.logprobs->width, kVocab + 1);
  double mass = 0;
  for (int64_t i = 1; i <= kVocab; ++i) mass += std::exp(output.logprobs->logprobs[i]);
  EXPECT_NEAR(mass, 1, 1e-4);
}

class HostedPromptLogprobs : public HostedWorkerTest {
 protected:
  static constexpr int32_t kLength = 50, kStride = 37;
  HostedPromptLogprobs() {
    for (int32_t i = 0; i < kLength; ++i) prompt_.push_back(i * kStride % kVocab);
  }
  static SamplingParams params(int32_t top) { return {.temperature = 0, .logprobs = 1, .prompt_logprobs = top}; }
  // All in one step, under an id of its own.
  LogprobTable at_once(int32_t top) {
    const HostedOutput output = run(StepBuilder().start("once", prompt_, {30, 31, 32, 33}, kLength, 0, params(top)));
    worker_.execute(StepBuilder().finish("once"));
    return only_table(output);
  }
  static LogprobTable only_table(const HostedOutput& output) {
    EXPECT_EQ(output.prompt_logprobs.size(), 1u);
    return output.prompt_logprobs.empty() ? LogprobTable() : output.prompt_logprobs[0].second;
  }
  void expect_none(const HostedOutput& output) {
    EXPECT_THAT(output.prompt_logprobs, IsEmpty());
    EXPECT_THAT(output.errors, IsEmpty());
  }
  static void expect_equal(const LogprobTable& ours, const LogprobTable& theirs) {
    EXPECT_EQ(ours.rows, theirs.rows);
    EXPECT_EQ(ours.width, theirs.width);
    EXPECT_EQ(ours.token_ids, theirs.token_ids);
    EXPECT_EQ(ours.logprobs, theirs.logprobs);
    EXPECT_EQ(ours.ranks, theirs.ranks);
  }

  std::vector<int32_t> prompt_;
};

// The logits of token t fall from t + 1 on: a prompt token 37 further on has rank 37, and the top are t + 1, t + 2.
TEST_F(HostedPromptLogprobs, AreARowForEachPositionFromOneOn) {
  const LogprobTable table = at_once(2);
  ASSERT_EQ(table.rows, kLength - 1);
  ASSERT_EQ(table.width, 3);
  for (int32_t p = 1; p < kLength; ++p) {
    const int64_t row = p - 1;
    EXPECT_EQ(table.ranks[row], kStride);
    EXPECT_EQ(table.token_ids[row * 3], prompt_[p]);
    EXPECT_EQ(table.token_ids[row * 3 + 1], (prompt_[p - 1] + 1) % kVocab);
    EXPECT_EQ(table.token_ids[row * 3 + 2], (prompt_[p - 1] + 2) % kVocab);
    EXPECT_LT(table.logprobs[row * 3], table.logprobs[row * 3 + 2]);
  }
}

TEST_F(HostedPromptLogprobs, AreTheSameOverChunksAndPreemptions) {
  for (const int32_t top : {0, 3, -1}) {
    SCOPED_TRACE(top);
    const LogprobTable expected = at_once(top);
    EXPECT_EQ(expected.width, top < 0 ? kVocab + 1 : top + 1);

    // V1: preempted after 27 tokens, resumed with other blocks from the start, in other chunks.
    expect_none(run(StepBuilder().start("v1", prompt_, {1, 2}, 20, 0, params(top))));
    expect_none(run(StepBuilder().go_on("v1", 20, 0, 7)));
    worker_.execute(StepBuilder().preempt("v1"));
    expect_none(run(StepBuilder().resume("v1", prompt_, {3, 4, 5, 6}, 0, 0, 10)));
    expect_none(run(StepBuilder().go_on("v1", 10, 0, 30)));
    expect_equal(only_table(run(StepBuilder().go_on("v1", 40, 0, 10))), expected);

    // V2: comes as new, with a hit on its own first block.
    expect_none(run(StepBuilder().start("v2", prompt_, {7, 8}, 27, 0, params(top))));
    worker_.execute(StepBuilder().preempt("v2"));
    StepBuilder again;
    again.start("v2", prompt_, {7, 9, 10, 11}, 34, 16, params(top));
    again.step.new_requests[0].prefill_token_ids = prompt_;
    expect_equal(only_table(run(again)), expected);

    // Once: neither its next token nor a resume, which scores the prompt anew, gives them again.
    expect_none(run(StepBuilder().go_on("v2", kLength, 1)));
    worker_.execute(StepBuilder().preempt("v2"));
    again.step.num_scheduled_tokens[0].second = 52 - 16;
    again.step.new_requests[0].prefill_token_ids->push_back((prompt_.back() + 1) % kVocab);
    again.step.new_requests[0].prefill_token_ids->push_back((prompt_.back() + 2) % kVocab);
    expect_none(run(again));
    EXPECT_FALSE(worker_.execute(StepBuilder().finish("v1").finish("v2")));
  }
}

TEST_F(HostedPromptLogprobs, OfAPromptOfOneTokenAreNone) {
  const LogprobTable table = only_table(run(StepBuilder().start("a", {5}, {1}, 1, 0, params(2))));
  EXPECT_EQ(table.rows, 0);
  EXPECT_EQ(table.width, 3);
}

// Hosts do not look into the prefix cache for such a request; one that does loses this request and no other.
TEST_F(HostedPromptLogprobs, BehindAPrefixHitAreAnError) {
  run(StepBuilder().start("writer", prompt_, {1, 2, 3, 4}, kLength));
  auto output = answers(StepBuilder()
                            .start("part", prompt_, {1, 2, 5, 6}, kLength - 32, 32, params(1))
                            .start("other", prompt_, {1, 2, 7, 8}, kLength - 32, 32));
  EXPECT_THAT(output.at("part"),
              HasSubstr("request 'part': the log-probs of its prompt are missing from position 1 on"));
  EXPECT_EQ(output.at("other"), std::to_string((prompt_.back() + 1) % kVocab));
  const std::vector<int32_t> two_blocks(prompt_.begin(), prompt_.begin() + 33);
  output = answers(StepBuilder().start("whole", two_blocks, {1, 2, 9}, 1, 32, params(1)));
  EXPECT_THAT(output.at("whole"), HasSubstr("missing from position 1 on"));
  output = answers(StepBuilder().finish("part").go_on("whole", 33, 1).go_on("other", kLength, 1));
  EXPECT_THAT(output.at("whole"), HasSubstr("missing from position 1 on"));
  EXPECT_EQ(output.at("other"), std::to_string((prompt_.back() + 2) % kVocab));
}

}  // namespace
}  // namespace spyre::platform
