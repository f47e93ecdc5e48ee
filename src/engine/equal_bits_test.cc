// The promise of equal bits, asked of the engine: whatever stands beside a request, and whatever the cache holds, its
// greedy tokens and log-probabilities are the same.
#include <gtest/gtest.h>

#include <random>

#include "engine/test_rig.h"
#include "platform/cpu_platform.h"
#include "platform/instance.h"
#include "platform/testing/golden.h"

namespace spyre::engine {
namespace {

using testing::Answers;
using testing::same;

constexpr int64_t kPrompt = 41, kTokens = 10, kLength = 64, kBlock = 8;

// A tiny golden model on the reference platform.
platform::Instance golden_instance(int64_t num_blocks, int64_t budget) {
  static const platform::CpuPlatform cpu;
  return platform::make_instance(cpu, {.model = platform::testing::golden_folders().front(),
                                       .max_model_len = kLength,
                                       .block_size = kBlock,
                                       .max_num_seqs = 16,
                                       .max_num_batched_tokens = budget,
                                       .num_kv_blocks = num_blocks});
}

class EqualBits : public ::testing::Test {
 protected:
  Request request(const std::string& id, int32_t seed, int64_t prompt = kPrompt) const {
    std::mt19937 random(seed);
    Request r{.id = id};
    for (int64_t i = 0; i < prompt; ++i) r.prompt_ids.push_back(static_cast<int32_t>(random() % 200));
    r.sampling = {.temperature = 0, .max_tokens = kTokens, .ignore_eos = true, .logprobs = 4};
    return r;
  }
  void expect_usual(const GenerateResult& result) const {
    EXPECT_EQ(result.token_ids, usual().token_ids);
    EXPECT_TRUE(same(result.logprobs, usual().logprobs));
  }
  void expect_usual(const Answers::One& one) const {
    EXPECT_EQ(one.tokens, usual().token_ids);
    EXPECT_TRUE(same(one.logprobs, usual().logprobs));
  }
  // Alone, in one chunk, in a fresh cache.
  const GenerateResult& usual() const {
    static const GenerateResult result = [this] {
      platform::Instance instance = golden_instance(9, 64);
      Engine engine(*instance.worker, {.num_blocks = 9});
      return generate(engine, request("", 1));
    }();
    return result;
  }
};

TEST_F(EqualBits, AsAFullAndAsAPartialPrefixHit) {
  platform::Instance instance = golden_instance(9, 64);
  Engine engine(*instance.worker, {.num_blocks = 9});
  expect_usual(generate(engine, request("", 1)));
  const GenerateResult full = generate(engine, request("", 1));
  EXPECT_EQ(full.num_cached_tokens, kPrompt / kBlock * kBlock);
  expect_usual(full);
  Request longer = request("", 1);  // the same beginning, another end
  longer.prompt_ids.resize(20);
  longer.prompt_ids.insert(longer.prompt_ids.end(), {7, 7, 7, 7, 7, 7, 7, 7});
  EXPECT_EQ(generate(engine, longer).num_cached_tokens, 16);

  platform::Instance other = golden_instance(9, 64);
  Engine fresh(*other.worker, {.num_blocks = 9});
  generate(fresh, longer);
  const GenerateResult partial = generate(fresh, request("", 1));
  EXPECT_EQ(partial.num_cached_tokens, 16);
  expect_usual(partial);
}

TEST_F(EqualBits, AfterItsBlocksWereEvicted) {
  platform::Instance instance = golden_instance(9, 64);
  Engine engine(*instance.worker, {.num_blocks = 9});
  expect_usual(generate(engine, request("", 1)));
  for (int32_t i = 0; i < 3; ++i) generate(engine, request("", 50 + i));
  const GenerateResult again = generate(engine, request("", 1));
  EXPECT_EQ(again.num_cached_tokens, 0);
  expect_usual(again);
}

TEST_F(EqualBits, AmongFifteenOthersInChunks) {
  for (const int64_t budget : {16, 23, 64}) {
    platform::Instance instance = golden_instance(16 * 8 + 1, budget);
    Engine engine(*instance.worker, {.num_blocks = 16 * 8 + 1});
    Answers answers;
    for (int32_t i = 0; i < 16; ++i) {
      if (i == 7) engine.submit(request("ours", 1), answers.callback());
      if (i != 7) engine.submit(request(std::to_string(i), 100 + i, 5 + 2 * i), {});
      engine.step();
    }
    while (engine.step()) {
    }
    expect_usual(answers[0]);
  }
}

TEST_F(EqualBits, AfterPreemption) {
  platform::Instance instance = golden_instance(14, 64);  // two sequences and a half
  Engine engine(*instance.worker, {.num_blocks = 14});
  Answers first, last;
  engine.submit(request("first", 2), first.callback());
  engine.submit(request("last", 1), last.callback());  // the latest is the one that gives way
  int64_t preempted_at = -1;
  while (engine.step()) {
    if (preempted_at < 0 && engine.stats().preemptions > 0) preempted_at = std::ssize(last[0].tokens);
  }
  EXPECT_GT(preempted_at, 0) << "nobody was preempted in the middle of an answer";
  expect_usual(last[0]);
}

}  // namespace
}  // namespace spyre::engine
