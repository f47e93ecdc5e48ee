// The echo platform as hosts find it: a plugin, driven through the hosted worker. What it must not miss are contexts
// that are not what was computed; what it must not do is complain about others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "platform/hosted_worker.h"
#include "platform/plugin.h"
#include "runner/testing/steps.h"

namespace spyre::platform {
namespace {

using runner::RequestId;
using runner::Step;
using runner::testing::StepBuilder;
using runner::testing::tokens_from;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr int32_t kVocab = 307;  // of llama_gqa64

class EchoPlatformTest : public ::testing::Test {
 protected:
  EchoPlatformTest() { clear_environment(); }
  ~EchoPlatformTest() override { clear_environment(); }

  static void clear_environment() {
    for (const char* name : {"SPYRE_PLUGINS", "SPYRE_ECHO_FAULT", "SPYRE_ECHO_DELAY_US"}) unsetenv(name);
  }
  const Platform& platform() { return registry_.get("echo"); }
  HostedWorker& start(EngineConfig config = {.model = SPYRE_GOLDEN_DATA "/llama_gqa64"}) {
    worker_.emplace(platform(), std::move(config));
    worker_->load_model();
    worker_->initialize_kv_cache(40);
    worker_->warm_up();
    return *worker_;
  }
  // By id: "17" for a token, "" for none, the message for an error.
  std::map<RequestId, std::string> answers(const Step& step, const runner::GrammarMask* mask = nullptr) {
    EXPECT_TRUE(worker_->execute(step));
    const HostedOutput output = worker_->sample(mask);
    std::map<RequestId, std::string> result;
    for (size_t i = 0; i < output.ids.size(); ++i) {
      result[output.ids[i]] = output.tokens[i].empty() ? "" : std::to_string(output.tokens[i].front());
    }
    for (const auto& [id, message] : output.errors) result[id] = message;
    return result;
  }

  PlatformRegistry registry_ = PlatformRegistry::discover({SPYRE_TEST_PLUGINS});
  std::optional<HostedWorker> worker_;
};

TEST_F(EchoPlatformTest, IsAPluginOfThisBuild) {
  ASSERT_EQ(registry_.plugins().size(), 1u);
  EXPECT_EQ(registry_.plugins()[0].problem, "");
  EXPECT_THAT(registry_.names(), Contains("echo"));
}

TEST_F(EchoPlatformTest, TakesItsShapeFromTheModel) {
  HostedWorker& worker = start({.model = SPYRE_GOLDEN_DATA "/llama_gqa64", .dtype = DType::kBF16, .block_size = 32});
  EXPECT_EQ(worker.vocab_size(), kVocab);
  EXPECT_EQ(worker.config().max_model_len, 512);
  EXPECT_EQ(worker.kv_cache_spec().block_size, 32);
  EXPECT_EQ(worker.kv_cache_spec().bytes_per_block, 32 * 2 * 2 * 3 * 64 * 2);  // K and V, 2 layers, 3 heads of 64, bf16
  EXPECT_EQ(start().kv_cache_spec().bytes_per_block, 16 * 2 * 2 * 3 * 64 * 4);
  EXPECT_THROW(HostedWorker(platform(), {.model = SPYRE_GOLDEN_DATA "/llama_gqa64", .dtype = DType::kI32}), Error);
  EXPECT_THROW(HostedWorker(platform(), {.model = SPYRE_GOLDEN_DATA "/llama_gqa64", .tensor_parallel_size = 2}), Error);
}

TEST_F(EchoPlatformTest, AnswersTheLastTokenPlusOne) {
  start();
  EXPECT_THAT(answers(StepBuilder().start("a", tokens_from(10, 40), {3, 1, 9}, 20).start("b", {306}, {2}, 1)),
              ElementsAre(Pair("a", ""), Pair("b", "0")));
  runner::GrammarMask mask{.request_ids = {"b"}, .rows = {std::vector<uint32_t>((kVocab + 31) / 32, 0)}};
  mask.rows[0][0] = 1;  // token 0: behind all others
  mask.rows[0][9] = 4;  // token 290
  EXPECT_THAT(answers(StepBuilder().go_on("a", 20, 0, 20).go_on("b", 1, 1), &mask),
              ElementsAre(Pair("a", "50"), Pair("b", "290")));
  // A preemption, other blocks, the history computed anew; a prefix hit on what "a" has written.
  worker_->execute(StepBuilder().preempt("a"));
  EXPECT_THAT(answers(StepBuilder()
                          .resume("a", tokens_from(10, 41), {5, 6, 7}, 0, 1, 41)
                          .start("c", tokens_from(10, 33), {3, 1, 8}, 1, 32)),
              ElementsAre(Pair("a", "51"), Pair("c", "43")));
  EXPECT_EQ(worker_->report("echo"),
            (nlohmann::json{{"forwards", 3}, {"verified_positions", 20 + 1 + 40 + 2 + 41 + 33}}));
}

// Log-probs tell all of the context, not only its last token.
TEST_F(EchoPlatformTest, LogprobsTellTheWholeContext) {
  start();
  const auto logprob = [&](const RequestId& id, std::vector<int32_t> prompt, int32_t block) {
    const int64_t length = std::ssize(prompt);
    worker_->execute(StepBuilder().start(id, std::move(prompt), {block}, length, 0, {.temperature = 0, .logprobs = 0}));
    return worker_->sample().logprobs->logprobs.at(0);
  };
  const float first = logprob("a", {5, 6, 7, 8}, 1);
  EXPECT_EQ(logprob("b", {5, 6, 7, 8}, 2), first);
  EXPECT_NE(logprob("c", {4, 6, 7, 8}, 3), first);
  EXPECT_NE(logprob("d", {6, 5, 7, 8}, 4), first);
  EXPECT_NE(logprob("e", {6, 7, 8}, 5), first);
}

TEST_F(EchoPlatformTest, WrongTablesAreReportedWithPositionAndBlock) {
  start();
  const std::vector<int32_t> prompt = tokens_from(10, 40);
  answers(StepBuilder().start("a", prompt, {1, 2, 3}, 40).start("good", tokens_from(100, 40), {4, 5, 6}, 40));
  const auto output = answers(StepBuilder()
                                  .go_on("good", 40, 1)
                                  .resume("a", tokens_from(10, 41), {2, 1, 7}, 32, 1, 9)
                                  .start("fresh", prompt, {1, 11, 12}, 8, 32)
                                  .start("mixed", prompt, {1, 5, 13}, 8, 32));
  EXPECT_EQ(output.at("a"), "echo: position 0 of its context, in block 2: it holds position 16");
  EXPECT_EQ(output.at("fresh"), "echo: position 16 of its context, in block 11: nothing was written there");
  EXPECT_EQ(output.at("mixed"),
            "echo: position 16 of its context, in block 5: its token 116 was written for another context");
  EXPECT_EQ(output.at("good"), "141");
}

TEST_F(EchoPlatformTest, APageUsedAnewIsReported) {
  start();
  answers(StepBuilder().start("a", tokens_from(10, 40), {1, 2, 3}, 40));
  // Block 2 goes to another while "a" still has it in its table.
  EXPECT_THAT(answers(StepBuilder().start("thief", tokens_from(100, 20), {2, 4}, 20)),
              ElementsAre(Pair("thief", "120")));
  const auto output = answers(StepBuilder().go_on("a", 40, 1).go_on("thief", 20, 1));
  EXPECT_EQ(output.at("a"), "echo: position 16 of its context, in block 2: it holds position 0");
  EXPECT_EQ(output.at("thief"), "121");
  // The same tokens at the same positions under the same prefix are the same context, whoever wrote them.
  answers(StepBuilder().finish("thief").finish("a").start("b", tokens_from(10, 32), {1, 2}, 32));
  EXPECT_THAT(answers(StepBuilder().start("c", tokens_from(10, 40), {1, 2, 3}, 8, 32)), ElementsAre(Pair("c", "50")));
}

TEST_F(EchoPlatformTest, CopiedAndZeroedBlocksAreWhatTheyAre) {
  start();
  answers(StepBuilder().start("a", tokens_from(10, 20), {1, 2}, 20));
  StepBuilder copied;
  copied.start("b", tokens_from(10, 20), {1, 3}, 1, 19);
  copied.step.block_copies = {{2, 3}};
  EXPECT_THAT(answers(copied), ElementsAre(Pair("b", "30")));
  StepBuilder zeroed;
  zeroed.go_on("a", 20, 1).go_on("b", 20, 1);
  zeroed.step.blocks_to_zero = {2};
  const auto output = answers(zeroed);
  EXPECT_EQ(output.at("a"), "echo: position 16 of its context, in block 2: nothing was written there");
  EXPECT_EQ(output.at("b"), "31");
}

TEST_F(EchoPlatformTest, FaultsComeWhenTheyAreAskedFor) {
  setenv("SPYRE_ECHO_FAULT", "throw@2,nan@4", 1);
  start();
  EXPECT_EQ(answers(StepBuilder().start("a", tokens_from(10, 4), {1}, 4))["a"], "14");
  EXPECT_EQ(answers(StepBuilder().go_on("a", 4, 1))["a"],
            "the step failed: echo: forward pass 2 throws, as SPYRE_ECHO_FAULT asks");
  EXPECT_EQ(answers(StepBuilder().finish("a").start("b", tokens_from(10, 4), {1}, 4))["b"], "14");
  const auto output = answers(StepBuilder().start("c", tokens_from(50, 4), {2}, 4).go_on("b", 4, 1));
  EXPECT_THAT(output.at("c"), HasSubstr("307 of 307 logits are not finite"));
  EXPECT_EQ(output.at("b"), "15");
}

TEST_F(EchoPlatformTest, AForwardPassTakesItsTime) {
  setenv("SPYRE_ECHO_DELAY_US", "20000", 1);
  start();
  answers(StepBuilder().start("a", tokens_from(10, 4), {1}, 4));
  EXPECT_GE(worker_->report("steps")["execute_seconds"].get<double>(), 0.02);
}

TEST_F(EchoPlatformTest, UnreadableFaultsAreNamed) {
  for (const auto& [name, value] :
       std::vector<std::pair<const char*, const char*>>{{"SPYRE_ECHO_FAULT", "throw"},
                                                        {"SPYRE_ECHO_FAULT", "throw@0"},
                                                        {"SPYRE_ECHO_FAULT", "throw@1x"},
                                                        {"SPYRE_ECHO_FAULT", "fire@1"},
                                                        {"SPYRE_ECHO_FAULT", "nan@1,,nan@2"},
                                                        {"SPYRE_ECHO_DELAY_US", "-1"}}) {
    clear_environment();
    setenv(name, value, 1);
    try {
      start();
      ADD_FAILURE() << name << "=" << value;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr(name));
    }
  }
}

}  // namespace
}  // namespace spyre::platform
