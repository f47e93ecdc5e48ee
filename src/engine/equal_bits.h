// The promise of equal bits, asked of the engine on any platform: whatever stands beside a request, and whatever the
// cache holds, its greedy tokens and log-probabilities are the same. For tests.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <utility>

#include "engine/generate.h"
#include "engine/test_rig.h"
#include "platform/instance.h"

namespace spyre::engine::testing {

class EqualBits {
 public:
  static constexpr int64_t kTokens = 10, kPromptBlocks = 5, kLengthBlocks = 8;

  // An instance with that many KV blocks and tokens per step; its max_model_len is |kLengthBlocks| blocks of
  // |block_size| tokens, its max_num_seqs 16.
  using Make = std::function<platform::Instance(int64_t num_blocks, int64_t budget)>;
  EqualBits(Make make, int64_t block_size)
      : make_(std::move(make)), block_(block_size), prompt_(kPromptBlocks * block_size + 1) {
    Subject alone(*this, kLengthBlocks + 1, kLengthBlocks * block_);
    usual_ = generate(*alone.engine, request("", 1));
    EXPECT_EQ(std::ssize(usual_.token_ids), kTokens);
  }

  void full_and_partial_prefix_hit() const {
    Subject a(*this, kLengthBlocks + 1, kLengthBlocks * block_);
    expect_usual(generate(*a.engine, request("", 1)));
    const GenerateResult full = generate(*a.engine, request("", 1));
    EXPECT_EQ(full.num_cached_tokens, kPromptBlocks * block_);
    expect_usual(full);

    Request other = request("", 1);  // the same beginning, another end
    other.prompt_ids.resize(2 * block_ + block_ / 2);
    other.prompt_ids.insert(other.prompt_ids.end(), block_, 7);
    EXPECT_EQ(generate(*a.engine, other).num_cached_tokens, 2 * block_);
    Subject b(*this, kLengthBlocks + 1, kLengthBlocks * block_);
    generate(*b.engine, other);
    const GenerateResult partial = generate(*b.engine, request("", 1));
    EXPECT_EQ(partial.num_cached_tokens, 2 * block_);
    expect_usual(partial);
  }

  void after_eviction() const {
    Subject a(*this, kLengthBlocks + 1, kLengthBlocks * block_);
    expect_usual(generate(*a.engine, request("", 1)));
    for (int32_t i = 0; i < 3; ++i) generate(*a.engine, request("", 50 + i));
    const GenerateResult again = generate(*a.engine, request("", 1));
    EXPECT_EQ(again.num_cached_tokens, 0);
    expect_usual(again);
  }

  void among_fifteen_others() const {
    for (const int64_t budget : {2 * block_, 3 * block_ - 1, kLengthBlocks * block_}) {
      Subject a(*this, 16 * kLengthBlocks + 1, budget);
      Answers ours;
      for (int32_t i = 0; i < 16; ++i) {
        if (i == 7) {
          a.engine->submit(request("ours", 1), ours.callback());
        } else {
          a.engine->submit(request(std::to_string(i), 100 + i, 5 + i * block_ / 4), {});
        }
        a.engine->step();
      }
      while (a.engine->step()) {
      }
      expect_usual(ours[0]);
    }
  }

  void after_preemption() const {
    // Room for both prompts and no more: when the first one needs another block, the later gives way.
    Subject a(*this, 2 * (kPromptBlocks + 1) + 1, kLengthBlocks * block_);
    Answers first, last;
    Request longest = request("first", 2, (kPromptBlocks + 1) * block_ - 3);
    longest.sampling.max_tokens = block_ + 8;
    a.engine->submit(longest, first.callback());
    a.engine->submit(request("last", 1, prompt_), last.callback());
    int64_t preempted_at = -1;
    while (a.engine->step()) {
      if (preempted_at < 0 && a.engine->stats().preemptions > 0) preempted_at = std::ssize(last[0].tokens);
    }
    EXPECT_GT(preempted_at, 0) << "nobody was preempted in the middle of an answer";
    expect_usual(last[0]);
  }

 private:
  struct Subject {
    Subject(const EqualBits& bits, int64_t num_blocks, int64_t budget) : instance(bits.make_(num_blocks, budget)) {
      engine = std::make_unique<Engine>(*instance.worker, EngineOptions{.num_blocks = num_blocks});
    }
    platform::Instance instance;
    std::unique_ptr<Engine> engine;
  };

  Request request(const std::string& id, int32_t seed) const { return request(id, seed, prompt_); }
  Request request(const std::string& id, int32_t seed, int64_t prompt) const {
    std::mt19937 random(seed);
    Request r{.id = id};
    for (int64_t i = 0; i < prompt; ++i) r.prompt_ids.push_back(static_cast<int32_t>(random() % 150));
    r.sampling = {.temperature = 0, .max_tokens = kTokens, .ignore_eos = true, .logprobs = 4};
    return r;
  }
  void expect_usual(const GenerateResult& result) const {
    EXPECT_EQ(result.token_ids, usual_.token_ids);
    EXPECT_TRUE(same(result.logprobs, usual_.logprobs));
  }
  void expect_usual(const Answers::One& one) const {
    EXPECT_EQ(one.tokens, usual_.token_ids);
    EXPECT_TRUE(same(one.logprobs, usual_.logprobs));
  }

  const Make make_;
  const int64_t block_, prompt_;
  GenerateResult usual_;  // alone, its prompt in one chunk, the cache fresh
};

}  // namespace spyre::engine::testing
