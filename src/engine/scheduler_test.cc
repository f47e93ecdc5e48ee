#include "engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

namespace spyre::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A scheduler over a cache of blocks of 4, and a machine whose steps take what the test says.
struct Bench {
  explicit Bench(SchedulerConfig config, int64_t blocks = 100)
      : cache(blocks + 1, 4), scheduler(config, cache, time), config(config) {}

  Sequence& add(int64_t prompt, int32_t first = 0) {
    auto s = std::make_unique<Sequence>();
    s->id = std::string(1, static_cast<char>('a' + sequences.size()));
    for (int64_t i = 0; i < prompt; ++i) s->tokens.push_back(static_cast<int32_t>(first + i));
    s->prompt_length = prompt;
    s->arrival = {sequences.size(), 0};
    scheduler.add(*s);
    sequences.push_back(std::move(s));
    return *sequences.back();
  }
  // Runs a step: who had how many tokens.
  std::vector<std::pair<std::string, int64_t>> step() {
    last = scheduler.schedule(now);
    for (const ScheduledStep::Part& part : last.parts) {
      scheduler.advance(part);
      if (part.sequence->left() == 0)
        part.sequence->tokens.push_back(1000 + static_cast<int32_t>(part.sequence->length()));
    }
    return last.step.num_scheduled_tokens;
  }
  using Parts = std::vector<std::pair<std::string, int64_t>>;

  KvCacheManager cache;
  StepTimeModel time;
  Scheduler scheduler;
  SchedulerConfig config;
  std::vector<std::unique_ptr<Sequence>> sequences;
  ScheduledStep last;
  double now = 0;
};

TEST(Scheduler, PromptsShareTheBudgetInOrderOfArrival) {
  Bench b({.max_num_batched_tokens = 10, .max_num_seqs = 3});
  b.add(7);
  b.add(8, 100);
  b.add(2, 200);
  b.add(3, 300);
  EXPECT_EQ(b.step(), (Bench::Parts{{"a", 7}, {"b", 3}}));
  EXPECT_EQ(b.step(), (Bench::Parts{{"a", 1}, {"b", 5}, {"c", 2}}));
  EXPECT_EQ(b.step(), (Bench::Parts{{"a", 1}, {"b", 1}, {"c", 1}}));  // no seat for d
  EXPECT_EQ(b.scheduler.num_waiting(), 1);
  b.scheduler.end(*b.sequences[1]);
  EXPECT_EQ(b.step(), (Bench::Parts{{"a", 1}, {"c", 1}, {"d", 3}}));
  EXPECT_THAT(b.last.step.finished, ElementsAre("b"));
}

TEST(Scheduler, DecodesComeBeforePromptsInTheBudget) {
  Bench b({.max_num_batched_tokens = 4, .max_num_seqs = 4});
  b.add(1);
  b.add(40, 100);
  b.add(1, 200);
  EXPECT_EQ(b.step(), (Bench::Parts{{"a", 1}, {"b", 3}}));
  EXPECT_EQ(b.step(), (Bench::Parts{{"a", 1}, {"b", 3}}));
  b.scheduler.end(*b.sequences[0]);
  EXPECT_EQ(b.step(), (Bench::Parts{{"b", 4}}));
}

TEST(Scheduler, TheLatestArrivalGivesWayAndResumes) {
  Bench b({.max_num_batched_tokens = 32, .max_num_seqs = 4}, 5);
  b.add(8);
  b.add(7, 100);  // 2 blocks each; the fifth goes to a's ninth token
  EXPECT_EQ(b.step(), (Bench::Parts{{"a", 8}, {"b", 7}}));
  EXPECT_EQ(b.step(), (Bench::Parts{{"a", 1}, {"b", 1}}));
  EXPECT_EQ(b.step(), (Bench::Parts{{"a", 1}}));
  EXPECT_THAT(b.last.step.preempted, ElementsAre("b"));
  EXPECT_EQ(b.step(), (Bench::Parts{{"a", 1}}));  // b does not fit beside a
  EXPECT_THAT(b.last.step.preempted, IsEmpty());
  b.scheduler.end(*b.sequences[0]);
  EXPECT_EQ(b.step(), (Bench::Parts{{"b", 1}}));  // its two full blocks were still there
  ASSERT_EQ(b.last.step.cached_requests.size(), 1u);
  EXPECT_TRUE(b.last.step.cached_requests[0].resumed);
  EXPECT_EQ(b.last.step.cached_requests[0].num_computed_tokens, 8);
  EXPECT_EQ(b.last.step.cached_requests[0].num_output_tokens, 2);
  EXPECT_EQ(b.sequences[1]->preemptions, 1);
  EXPECT_EQ(b.scheduler.counters().preemptions, 1);
}

TEST(Scheduler, APromptIsAdmittedWhenAllOfItFitsBesideTheOthers) {
  Bench b({.max_num_batched_tokens = 4, .max_num_seqs = 4}, 8);
  b.add(20);  // 5 blocks, one of them computed in the first step
  b.add(16, 100);
  EXPECT_EQ(b.step(), (Bench::Parts{{"a", 4}}));
  for (int i = 0; i < 4; ++i) b.step();
  EXPECT_EQ(b.scheduler.running().size(), 1u);  // 3 blocks are free, b needs 4
  b.scheduler.end(*b.sequences[0]);
  EXPECT_EQ(b.step(), (Bench::Parts{{"b", 4}}));
}

TEST(Scheduler, EndsInEveryState) {
  Bench b({.max_num_batched_tokens = 4, .max_num_seqs = 1});
  b.add(8);
  b.add(8, 100);
  b.step();
  b.scheduler.end(*b.sequences[1]);  // waits, unknown to the worker
  b.scheduler.end(*b.sequences[0]);  // in the middle of its prompt
  EXPECT_EQ(b.cache.available(), b.cache.usable());
  EXPECT_FALSE(b.scheduler.idle());  // the worker has to hear of it
  EXPECT_EQ(b.step(), (Bench::Parts{}));
  EXPECT_THAT(b.last.step.finished, ElementsAre("a"));
  EXPECT_TRUE(b.scheduler.idle());
  EXPECT_TRUE(b.scheduler.schedule(0).empty());
}

TEST(Scheduler, AFailedStepSaysItsEndingsAgain) {
  Bench b({.max_num_batched_tokens = 8, .max_num_seqs = 2});
  b.add(4);
  b.add(4, 100);
  b.step();
  b.scheduler.end(*b.sequences[0]);
  const ScheduledStep failed = b.scheduler.schedule(0);
  EXPECT_THAT(failed.step.finished, ElementsAre("a"));
  b.scheduler.fail(failed.step);
  b.scheduler.end(*b.sequences[1]);
  EXPECT_THAT(b.scheduler.schedule(0).step.finished, ElementsAre("a", "b"));
}

// Virtual time: streams are running when prompts of 4,000 tokens come in. A token of a prompt takes 1 ms, so a whole
// budget would take half a second; the streams see no gap above the bound, and the prompts get all the time there is.
TEST(Scheduler, ALongPromptKeepsTheTokenGap) {
  const auto longest_gap = [](double bound) {
    SchedulerConfig config{.max_num_batched_tokens = 512, .max_num_seqs = 16, .max_token_gap = bound, .min_chunk = 16};
    Bench b(config, 8000);
    const auto seconds = [](const StepShape& s) {
      return 0.004 + 1e-3 * static_cast<double>(s.prefill_tokens) + 1e-3 * static_cast<double>(s.decode_rows) +
             1e-6 * s.decode_context + 2e-8 * s.prefill_pairs;
    };
    for (int i = 0; i < 8; ++i) b.add(20, i * 5000);
    double longest = 0;
    for (int64_t n = 0; n < 700; ++n) {
      if (n == 60 || n == 70) b.add(4000, 100000 + static_cast<int32_t>(n) * 5000);
      b.step();
      const double took = seconds(b.last.shape);
      b.time.observe(b.last.shape, took);
      b.now += took;
      if (n >= 60 && b.last.shape.decode_rows > 0) longest = std::max(longest, took);
    }
    EXPECT_GT(b.sequences[9]->outputs(), 0) << "the second prompt was never finished";
    return longest;
  };
  EXPECT_GT(longest_gap(0), 0.5);  // no bound
  EXPECT_LE(longest_gap(0.1), 0.105);
  EXPECT_GT(longest_gap(0.1), 0.08);  // and no less than it may
  EXPECT_LE(longest_gap(0.2), 0.21);
  EXPECT_LE(longest_gap(0.001), 0.004 + 0.016 + 0.010 + 0.05);  // cannot be kept: the minimum chunk goes on
}

}  // namespace
}  // namespace spyre::engine
