// The requests of `spyre bench serve`: how long prompts and answers are, and when they come. All of it follows from a
// seed, on every machine alike (no distribution of the standard library, whose draws differ between libraries).
#pragma once

#include <cstdint>
#include <vector>

namespace spyre::cli {

// Lengths in tokens, log-normal: exp(log(median) + sigma * normal), rounded, between 1 and a bound. The defaults are
// like those of conversations that people share with each other (ShareGPT and its relatives): many short ones and a
// long tail. Means before the bounds: median * exp(sigma^2 / 2) = 197 tokens of prompt, 192 of answer.
struct LengthMix {
  double prompt_median = 96, prompt_sigma = 1.2;
  double output_median = 128, output_sigma = 0.9;
  int64_t max_prompt = 1024, max_output = 1024;
};

struct MixedRequest {
  std::vector<int32_t> prompt_ids;
  int64_t output_tokens = 0;
  double at = 0;  // seconds from the start, ascending; 0 for all without a rate
};

// |count| requests for a model of |vocabulary| tokens whose sequences have at most |max_model_len|: a prompt that is
// too long is cut so that a token of answer fits, and the answer to what is left. With |rate| > 0 they come as a
// Poisson process of so many a second. Throws Error(kInvalidArgument) for lengths, counts or rates out of range.
std::vector<MixedRequest> draw_requests(const LengthMix& mix, int64_t count, uint64_t seed, int64_t vocabulary,
                                        int64_t max_model_len, double rate);

}  // namespace spyre::cli
