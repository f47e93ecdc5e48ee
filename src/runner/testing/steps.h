// Short forms for writing steps in tests.
#pragma once

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "runner/step.h"

namespace spyre::runner::testing {

// |count| tokens first, first + 1, ... below |vocab|.
inline std::vector<int32_t> tokens_from(int32_t first, int64_t count, int32_t vocab = 320) {
  std::vector<int32_t> tokens(count);
  for (int64_t i = 0; i < count; ++i) tokens[i] = static_cast<int32_t>((first + i) % vocab);
  return tokens;
}

struct StepBuilder {
  Step step;

  StepBuilder& add(NewRequest request, int64_t tokens) {
    step.num_scheduled_tokens.emplace_back(request.id, tokens);
    step.new_requests.push_back(std::move(request));
    return *this;
  }
  StepBuilder& start(const RequestId& id, std::vector<int32_t> prompt, std::vector<int32_t> blocks, int64_t tokens,
                     int64_t computed = 0, SamplingParams sampling = {.temperature = 0}) {
    return add({.id = id,
                .prompt_token_ids = std::move(prompt),
                .block_ids = {std::move(blocks)},
                .num_computed_tokens = computed,
                .sampling = std::move(sampling)},
               tokens);
  }
  StepBuilder& add(CachedRequest request, int64_t tokens) {
    step.num_scheduled_tokens.emplace_back(request.id, tokens);
    step.cached_requests.push_back(std::move(request));
    return *this;
  }
  StepBuilder& go_on(const RequestId& id, int64_t computed, int64_t outputs, int64_t tokens = 1,
                     std::vector<int32_t> new_blocks = {}) {
    CachedRequest request{.id = id, .num_computed_tokens = computed, .num_output_tokens = outputs};
    if (!new_blocks.empty()) request.new_block_ids = BlockIds{std::move(new_blocks)};
    return add(std::move(request), tokens);
  }
  StepBuilder& resume(const RequestId& id, std::vector<int32_t> history, std::vector<int32_t> blocks, int64_t computed,
                      int64_t outputs, int64_t tokens) {
    return add(CachedRequest{.id = id,
                             .resumed = true,
                             .all_token_ids = std::move(history),
                             .new_block_ids = BlockIds{std::move(blocks)},
                             .num_computed_tokens = computed,
                             .num_output_tokens = outputs},
               tokens);
  }
  StepBuilder& finish(const RequestId& id) {
    step.finished.push_back(id);
    return *this;
  }
  StepBuilder& preempt(const RequestId& id) {
    step.preempted.push_back(id);
    return *this;
  }
  operator const Step&() const { return step; }  // NOLINT(google-explicit-constructor)
};

}  // namespace spyre::runner::testing
