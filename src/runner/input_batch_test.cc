#include "runner/input_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>

#include "base/error.h"
#include "runner/testing/steps.h"

namespace spyre::runner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::StepBuilder;
using testing::tokens_from;

constexpr InputBatchLimits kLimits{.block_size = 4,
                                   .num_blocks = 20,
                                   .max_model_len = 32,
                                   .max_num_batched_tokens = 16,
                                   .max_num_seqs = 3,
                                   .vocab_size = 320};

// Runs a step as the worker does: every request that samples is given |token|.
void run(InputBatch& batch, const Step& step, int32_t token = 100) {
  batch.apply(step);
  batch.forward_batch();
  batch.advance();
  for (const ScheduledRequest& request : batch.scheduled()) {
    if (request.samples) batch.append_token(*request.state, token);
  }
}

TEST(InputBatch, FlattensSequencesOneAfterTheOther) {
  InputBatch batch(kLimits);
  run(batch, StepBuilder().start("a", tokens_from(10, 6), {7, 3}, 6));
  batch.apply(StepBuilder().go_on("a", 6, 1).start("b", tokens_from(50, 7), {9, 2}, 3, 2));
  const ForwardBatch flat = batch.forward_batch();
  EXPECT_THAT(flat.token_ids, ElementsAre(100, 52, 53, 54));
  EXPECT_THAT(flat.positions, ElementsAre(6, 2, 3, 4));
  EXPECT_THAT(flat.slots, ElementsAre(3 * 4 + 2, 9 * 4 + 2, 9 * 4 + 3, 2 * 4 + 0));
  EXPECT_THAT(flat.attention.query_start, ElementsAre(0, 1, 4));
  EXPECT_THAT(flat.attention.seq_lens, ElementsAre(7, 5));
  EXPECT_EQ(flat.attention.max_blocks, 2);
  EXPECT_THAT(flat.attention.block_table, ElementsAre(7, 3, 9, 2));
  EXPECT_EQ(flat.attention.block_size, 4);
  EXPECT_TRUE(flat.attention.causal);
  EXPECT_THAT(flat.logits_rows, ElementsAre(0));  // b is in the middle of its prompt
  ASSERT_EQ(batch.scheduled().size(), 2u);
  EXPECT_TRUE(batch.scheduled()[0].samples);
  EXPECT_FALSE(batch.scheduled()[1].samples);
  EXPECT_EQ(batch.scheduled()[1].first_token, 1);
}

TEST(InputBatch, TheTableOfAStepHoldsOnlyBlocksInUse) {
  InputBatch batch(kLimits);
  batch.apply(StepBuilder().start("a", tokens_from(0, 9), {1, 2, 3, 4}, 9).start("b", tokens_from(0, 2), {5, 6}, 2));
  const ForwardBatch flat = batch.forward_batch();
  EXPECT_EQ(flat.attention.max_blocks, 3);
  EXPECT_THAT(flat.attention.block_table, ElementsAre(1, 2, 3, 5, 0, 0));
}

TEST(InputBatch, BatchOrderIsTheOrderOfTheScheduledTokens) {
  InputBatch batch(kLimits);
  run(batch, StepBuilder().start("a", tokens_from(0, 2), {1}, 2).start("b", tokens_from(9, 2), {2}, 2));
  StepBuilder step = StepBuilder().go_on("b", 2, 1).go_on("a", 2, 1).start("c", tokens_from(5, 1), {3}, 1);
  std::swap(step.step.num_scheduled_tokens[0], step.step.num_scheduled_tokens[2]);
  batch.apply(step);
  EXPECT_EQ(batch.scheduled()[0].state->id, "c");
  EXPECT_EQ(batch.scheduled()[1].state->id, "a");
  EXPECT_EQ(batch.scheduled()[2].state->id, "b");
}

TEST(InputBatch, ScoredPromptRowsComeBeforeTheRowThatSamples) {
  InputBatch batch(kLimits);
  const SamplingParams scored{.temperature = 0, .prompt_logprobs = 2};
  batch.apply(StepBuilder().start("x", tokens_from(0, 3), {9}, 3).start("a", tokens_from(0, 7), {1, 2}, 4, 0, scored));
  EXPECT_THAT(batch.forward_batch().logits_rows, ElementsAre(2, 3, 4, 5, 6));
  EXPECT_EQ(batch.scheduled()[1].logits_row, 1);
  EXPECT_EQ(batch.scheduled()[1].scored_rows(), 4);
  batch.advance();
  batch.append_token(*batch.scheduled()[0].state, 5);
  batch.apply(StepBuilder().go_on("a", 4, 0, 3));  // positions 4 and 5 score tokens 5 and 6; position 6 samples
  EXPECT_THAT(batch.forward_batch().logits_rows, ElementsAre(0, 1, 2));
  EXPECT_EQ(batch.scheduled()[0].scored_rows(), 2);
  EXPECT_EQ(batch.scheduled()[0].logits_rows, 3);
  batch.advance();
  batch.append_token(*batch.scheduled()[0].state, 5);
  batch.apply(StepBuilder().go_on("a", 7, 1));
  EXPECT_EQ(batch.scheduled()[0].scored_rows(), 0);
  EXPECT_THAT(batch.forward_batch().logits_rows, ElementsAre(0));
}

TEST(InputBatch, AResumeReplacesTheTableUnderBothContracts) {
  for (const bool v2 : {false, true}) {
    InputBatch batch(kLimits);
    run(batch, StepBuilder().start("a", tokens_from(0, 5), {1, 2}, 5));
    run(batch, StepBuilder().go_on("a", 5, 1));
    run(batch, StepBuilder().preempt("a"));
    ASSERT_NE(batch.find("a"), nullptr);
    EXPECT_THAT(batch.find("a")->blocks, ElementsAre(1, 2));
    std::vector<int32_t> history = tokens_from(0, 5);
    history.insert(history.end(), {100, 100});
    StepBuilder step;
    if (v2) {
      step.add(NewRequest{.id = "a",
                          .prompt_token_ids = tokens_from(0, 5),
                          .prefill_token_ids = history,
                          .block_ids = {{1, 8}},
                          .num_computed_tokens = 4},
               3);
    } else {
      step.resume("a", history, {1, 8}, 4, 2, 3);
    }
    batch.apply(step);
    EXPECT_THAT(batch.find("a")->blocks, ElementsAre(1, 8));
    EXPECT_EQ(batch.find("a")->prompt_length, 5);
    EXPECT_THAT(batch.forward_batch().token_ids, ElementsAre(4, 100, 100));
    EXPECT_THAT(batch.forward_batch().slots, ElementsAre(32, 33, 34));
    EXPECT_TRUE(batch.scheduled()[0].samples);
  }
}

TEST(InputBatch, AnIdMayBeFinishedAndNewInOneStep) {
  InputBatch batch(kLimits);
  run(batch, StepBuilder().start("a", tokens_from(0, 5), {1, 2}, 5));
  run(batch, StepBuilder().finish("a").start("a", tokens_from(40, 3), {2}, 3).finish("never seen"), 7);
  EXPECT_THAT(batch.find("a")->tokens, ElementsAre(40, 41, 42, 7));
  run(batch, StepBuilder().finish("a"));
  EXPECT_EQ(batch.size(), 0);
}

TEST(InputBatch, RequestsMayShareBlocksToRead) {
  InputBatch batch(kLimits);
  run(batch, StepBuilder().start("a", tokens_from(0, 5), {1, 2}, 5));
  EXPECT_NO_THROW(batch.apply(StepBuilder().start("b", tokens_from(0, 6), {1, 3}, 2, 4).go_on("a", 5, 1)));
}

TEST(InputBatch, BadSamplingParametersFailOneRequestOnly) {
  InputBatch batch(kLimits);
  batch.apply(
      StepBuilder().start("a", tokens_from(0, 2), {1}, 2, 0, {.top_p = -1}).start("b", tokens_from(0, 2), {2}, 2));
  EXPECT_THAT(batch.find("a")->failure, HasSubstr("top_p is -1"));
  EXPECT_THAT(batch.find("b")->failure, IsEmpty());
}

TEST(InputBatch, LimitsAreChecked) {
  const auto with = [](auto change) {
    InputBatchLimits limits = kLimits;
    change(limits);
    return limits;
  };
  EXPECT_THROW(InputBatch(with([](auto& l) { l.block_size = 0; })), Error);
  EXPECT_THROW(InputBatch(with([](auto& l) { l.num_blocks = 1; })), Error);
  EXPECT_THROW(InputBatch(with([](auto& l) { l.max_model_len = 0; })), Error);
  EXPECT_THROW(InputBatch(with([](auto& l) { l.max_num_batched_tokens = -3; })), Error);
  EXPECT_THROW(InputBatch(with([](auto& l) { l.max_num_seqs = 0; })), Error);
  EXPECT_THROW(InputBatch(with([](auto& l) { l.vocab_size = 0; })), Error);
  EXPECT_THROW(InputBatch(with([](auto& l) { l.num_blocks = int64_t{1} << 30; })), Error);
}

// ---- Steps that contradict themselves or what is known. Before each: a has 6 prompt tokens, 1 sampled, 6 computed, in
// blocks 1 and 2; b has 8 prompt tokens, 4 computed, in blocks 3 and 4.
struct Contradiction {
  const char* name;
  std::function<StepBuilder()> step;
  std::vector<const char*> message;
};

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

std::vector<Contradiction> contradictions() {
  using B = StepBuilder;
  const auto add_named = [](B b, const RequestId& id, int64_t tokens) {
    b.step.num_scheduled_tokens.emplace_back(id, tokens);
    return b;
  };
  const auto fresh = [](NewRequest request, int64_t tokens) { return B().add(std::move(request), tokens); };
  const std::vector<int32_t> history = {0, 1, 2, 3, 4, 5, 100};
  return {
      {"unknown_id", [] { return B().go_on("z", 6, 1); }, {"'z'", "not known"}},
      {"finished_id", [] { return B().finish("a").go_on("a", 6, 1); }, {"'a'", "not known"}},
      {"scheduled_but_not_named", [=] { return add_named(B(), "a", 1); }, {"'a'", "neither new nor cached"}},
      {"named_but_not_scheduled",
       [] {
         B b = B().go_on("a", 6, 1);
         b.step.num_scheduled_tokens.clear();
         return b;
       },
       {"'a'", "no tokens are scheduled"}},
      {"cached_twice",
       [] {
         B b = B().go_on("a", 6, 1).go_on("a", 6, 1);
         b.step.num_scheduled_tokens.pop_back();
         return b;
       },
       {"'a'", "named twice"}},
      {"new_and_cached", [] { return B().go_on("c", 0, 0).start("c", {1}, {9}, 1); }, {"'c'"}},
      {"new_twice", [] { return B().start("c", {1}, {9}, 1).start("c", {1}, {10}, 1); }, {"'c'", "named twice"}},
      {"scheduled_twice", [=] { return add_named(B().go_on("a", 6, 1), "a", 1); }, {"'a'", "scheduled twice"}},
      {"zero_tokens", [] { return B().go_on("a", 6, 1, 0); }, {"'a'", "0 tokens are scheduled"}},
      {"negative_tokens", [] { return B().go_on("a", 6, 1, -kHuge); }, {"'a'", "tokens are scheduled"}},
      {"budget", [] { return B().go_on("a", 6, 1, 17); }, {"'a'", "17 tokens", "max_num_batched_tokens 16"}},
      {"budget_in_all",
       [] { return B().go_on("b", 4, 0, 4).start("c", tokens_from(0, 13), {5, 6, 7, 8}, 13); },
       {"'c'", "13 tokens after 4"}},
      {"budget_overflow", [] { return B().go_on("a", 6, 1).go_on("b", 4, 0, kHuge); }, {"'b'", "16"}},
      {"too_many_requests",
       [] { return B().go_on("a", 6, 1).go_on("b", 4, 0).start("c", {1}, {9}, 1).start("d", {1}, {10}, 1); },
       {"4 requests", "max_num_seqs 3"}},
      {"more_than_known",
       [] { return B().go_on("a", 6, 1, 2); },
       {"'a'", "computed 6 + scheduled 2", "7 tokens known"}},
      {"more_than_the_prompt", [] { return B().start("c", {1, 2}, {9}, 3); }, {"'c'", "scheduled 3", "2 tokens known"}},
      {"computed_beyond", [] { return B().start("c", {1, 2}, {9}, 1, kHuge); }, {"'c'", "2 tokens known"}},
      {"computed_negative", [] { return B().start("c", {1, 2}, {9}, 1, -1); }, {"'c'", "computed -1"}},
      {"all_computed", [] { return B().start("c", {1, 2}, {9}, 1, 2); }, {"'c'", "computed 2 + scheduled 1"}},
      {"another_computed", [] { return B().go_on("b", 5, 0); }, {"'b'", "is 5, but 4 are computed"}},
      {"another_output_count", [] { return B().go_on("a", 6, 2); }, {"'a'", "is 2, but 1 were sampled"}},
      {"too_few_blocks",
       [] { return B().start("c", tokens_from(0, 5), {9}, 5); },
       {"'c'", "need 2 blocks of 4", "has 1"}},
      {"no_blocks", [] { return B().start("c", {1}, {}, 1); }, {"'c'", "has 0"}},
      {"null_block", [] { return B().start("c", {1}, {0}, 1); }, {"'c'", "block 0", "1 to 19"}},
      {"block_past_the_end", [] { return B().start("c", {1}, {20}, 1); }, {"'c'", "block 20", "1 to 19"}},
      {"negative_block", [] { return B().go_on("b", 4, 0, 1, {-7}); }, {"'b'", "block -7"}},
      {"block_twice", [] { return B().start("c", {1}, {9, 9}, 1); }, {"'c'", "block 9 occurs twice"}},
      {"block_twice_by_appending", [] { return B().go_on("b", 4, 0, 1, {3}); }, {"'b'", "block 3 occurs twice"}},
      {"block_written_by_two",
       [] { return B().go_on("a", 6, 1).start("c", {1}, {2}, 1); },
       {"'c'", "block 2 is written"}},
      {"two_groups",
       [=] { return fresh({.id = "c", .prompt_token_ids = {1}, .block_ids = {{9}, {10}}}, 1); },
       {"'c'", "2 KV cache groups"}},
      {"no_group", [=] { return fresh({.id = "c", .prompt_token_ids = {1}}, 1); }, {"'c'", "0 KV cache groups"}},
      {"empty_prompt", [] { return B().start("c", {}, {9}, 1); }, {"'c'", "empty"}},
      {"token_past_the_vocabulary",
       [] { return B().start("c", {1, 320}, {9}, 1); },
       {"'c'", "token 320 at position 1"}},
      {"negative_token", [] { return B().start("c", {-1}, {9}, 1); }, {"'c'", "token -1 at position 0"}},
      {"prompt_too_long",
       [] { return B().start("c", tokens_from(0, 33), {9}, 1); },
       {"'c'", "33 tokens", "max_model_len 32"}},
      {"prefill_without_its_prompt",
       [=] {
         return fresh({.id = "c", .prompt_token_ids = {1, 2}, .prefill_token_ids = {{1, 3, 4}}, .block_ids = {{9}}}, 1);
       },
       {"'c'", "do not begin with"}},
      {"resumed_with_another_history",
       [] { return B().resume("a", {0, 1, 2, 3, 4, 5, 99}, {5, 6}, 0, 1, 7); },
       {"'a'", "differs from ours (7 tokens) at position 6"}},
      {"resumed_with_half_the_history",
       [] { return B().resume("a", {0, 1, 2, 3, 4, 5}, {5, 6}, 0, 1, 6); },
       {"'a'", "(6 tokens) differs from ours (7 tokens)"}},
      {"resumed_as_new_with_the_prompt_alone",
       [] { return B().start("a", tokens_from(0, 6), {5, 6}, 6); },
       {"'a'", "(6 tokens) differs"}},
      {"resumed_without_blocks",
       [=] {
         return B().add(CachedRequest{.id = "a", .resumed = true, .all_token_ids = history, .num_output_tokens = 1}, 7);
       },
       {"'a'", "without a block table"}},
      {"resumed_with_too_few_blocks", [=] { return B().resume("a", history, {5}, 0, 1, 7); }, {"'a'", "has 1"}},
      {"history_resent_differs",
       [] {
         return B().add(
             CachedRequest{.id = "a", .all_token_ids = {{1}}, .num_computed_tokens = 6, .num_output_tokens = 1}, 1);
       },
       {"'a'", "differs"}},
      {"preempted_unknown", [] { return B().preempt("z"); }, {"'z'", "not known"}},
      {"preempted_and_scheduled", [] { return B().go_on("a", 6, 1).preempt("a"); }, {"'a'", "preempted and scheduled"}},
      {"zeroes_the_null_block",
       [] {
         B b = B().go_on("a", 6, 1);
         b.step.blocks_to_zero = {3, 0};
         return b;
       },
       {"block 0 to be zeroed"}},
      {"copies_from_past_the_end",
       [] {
         B b = B().go_on("a", 6, 1);
         b.step.block_copies = {{20, 1}};
         return b;
       },
       {"block 20 to be copied from"}},
      {"copies_onto_the_null_block",
       [] {
         B b = B().go_on("a", 6, 1);
         b.step.block_copies = {{1, 0}};
         return b;
       },
       {"block 0 to be copied to"}},
  };
}

class Refused : public ::testing::TestWithParam<Contradiction> {};

TEST_P(Refused, NamesTheNumbersAndAppliesNothing) {
  InputBatch batch(kLimits);
  run(batch, StepBuilder().start("a", tokens_from(0, 6), {1, 2}, 6).start("b", tokens_from(20, 8), {3, 4}, 4));
  // A finish and a good new request come along: they must not be applied either.
  StepBuilder step = GetParam().step();
  step.step.finished.push_back("b");
  const bool uses_b = std::any_of(step.step.num_scheduled_tokens.begin(), step.step.num_scheduled_tokens.end(),
                                  [](const auto& entry) { return entry.first == "b"; });
  if (uses_b) step.step.finished.pop_back();
  try {
    batch.apply(step);
    FAIL() << "the step was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    for (const char* part : GetParam().message) EXPECT_THAT(error.what(), HasSubstr(part));
  }
  ASSERT_EQ(batch.size(), 2);
  EXPECT_THAT(batch.find("a")->tokens, ElementsAre(0, 1, 2, 3, 4, 5, 100));
  EXPECT_THAT(batch.find("a")->blocks, ElementsAre(1, 2));
  EXPECT_EQ(batch.find("a")->computed, 6);
  EXPECT_THAT(batch.find("b")->blocks, ElementsAre(3, 4));
  EXPECT_EQ(batch.find("b")->computed, 4);
  EXPECT_NO_THROW(run(batch, StepBuilder().go_on("a", 6, 1).go_on("b", 4, 0, 4)));
}

INSTANTIATE_TEST_SUITE_P(InputBatch, Refused, ::testing::ValuesIn(contradictions()),
                         [](const auto& info) { return std::string(info.param.name); });

// Steps of numbers that are now right, now absurd: each is taken whole or refused whole, and what was taken is in
// bounds.
TEST(InputBatch, RandomStepsAreTakenOrRefused) {
  std::mt19937 engine(20240607);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine);
  };
  const auto number = [&](int64_t right) -> int64_t {
    constexpr int64_t kOdd[] = {-1, 0, 1, 7, 31, 32, 33, 1 << 20, kHuge, -kHuge - 1};
    return pick(0, 9) == 0 ? kOdd[pick(0, 9)] : right;
  };
  const auto blocks = [&](int64_t count) {
    std::vector<int32_t> ids(count);
    for (int32_t& id : ids) id = static_cast<int32_t>(pick(0, 60) == 0 ? number(0) : pick(1, 19));
    return ids;
  };
  InputBatch batch(kLimits);
  int taken = 0, refused = 0;
  for (int round = 0; round < 20000; ++round) {
    StepBuilder step;
    for (int n = static_cast<int>(pick(0, 3)); n > 0; --n) {
      const RequestId id(1, static_cast<char>('a' + pick(0, 4)));
      const RequestState* known = batch.find(id);
      if (pick(0, 5) == 0) step.finish(id);
      if (pick(0, 9) == 0) step.preempt(id);
      if (known == nullptr || pick(0, 7) == 0) {
        std::vector<int32_t> prompt = tokens_from(static_cast<int32_t>(pick(0, 300)), pick(0, 12));
        const int64_t length = std::ssize(prompt);
        step.start(id, prompt, blocks((length + 3) / 4), number(std::min<int64_t>(length, pick(1, 12))), number(0));
      } else {
        const int64_t left = known->known() - known->computed;
        const int64_t tokens = number(std::min<int64_t>(left, pick(1, 8)));
        const bool grows = (known->computed + 8) / 4 > std::ssize(known->blocks);
        step.go_on(id, number(known->computed), number(known->output_length()), tokens, blocks(grows ? pick(1, 2) : 0));
      }
    }
    const int64_t size = batch.size();
    try {
      run(batch, step, static_cast<int32_t>(pick(0, 319)));
      ++taken;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
      ASSERT_EQ(batch.size(), size);
      ++refused;
      continue;
    }
    const ForwardBatch flat = batch.forward_batch();
    for (const int32_t slot : flat.slots) ASSERT_TRUE(slot >= 4 && slot < 80) << slot;
    for (const ScheduledRequest& request : batch.scheduled()) {
      ASSERT_LE(request.state->computed, std::ssize(request.state->tokens));
      ASSERT_LE(request.state->computed, std::ssize(request.state->blocks) * 4);
    }
  }
  EXPECT_GT(taken, 2000);
  EXPECT_GT(refused, 2000);
}

TEST(InputBatch, TheModelLengthBoundsASequence) {
  InputBatch batch(kLimits);
  run(batch, StepBuilder().start("a", tokens_from(0, 32), {1, 2, 3, 4, 5, 6, 7, 8}, 16));
  run(batch, StepBuilder().go_on("a", 16, 0, 16));
  try {
    batch.apply(StepBuilder().go_on("a", 32, 1, 1, {9}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("computed 32 + scheduled 1 exceeds max_model_len 32"));
  }
}

}  // namespace
}  // namespace spyre::runner
