// From a row of logits to a token. Deterministic: the same logits, parameters, seed and draw counter give the same token
// on every machine (own exp, fixed order of sums, counter-based random numbers).
//
// Filters act in vLLM's order: grammar mask, temperature, min-p, top-k, top-p. Greedy (temperature 0) takes the largest
// logit, the lowest id among equals. Log-probs are of the raw logits, before any of it, as vLLM's default
// (raw_logprobs).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/export.h"
#include "runner/input_batch.h"
#include "runner/step.h"

namespace spyre::runner {

class SPYRE_API TokenSampler {
 public:
  virtual ~TokenSampler() = default;
  // |logits| is the request's last row; |allowed| its grammar row or empty. Throws Error(kInvalidArgument) when the
  // mask allows nothing.
  virtual int32_t sample(const RequestState& request, std::span<const float> logits, std::span<const uint32_t> allowed) = 0;
};

// A request without a seed draws from |default_seed| and its id; one with a seed from the seed alone, so that the same
// seeded request gives the same tokens in any batch.
class SPYRE_API Sampler final : public TokenSampler {
 public:
  explicit Sampler(uint64_t default_seed = 0) : default_seed_(default_seed) {}
  int32_t sample(const RequestState& request, std::span<const float> logits, std::span<const uint32_t> allowed) override;

 private:
  uint64_t default_seed_;
  std::vector<float> work_;
  std::vector<int32_t> order_;
};

// log-softmax of |logits| at |token|, its rank, and the |top| largest entries (-1 = all).
SPYRE_API TokenLogprob token_logprob(std::span<const float> logits, int32_t token, int32_t top);

// Range checks of the request's own fields against the model's limits: throws Error(kInvalidArgument) naming the field
// and the value (NaN temperature, top_p outside (0, 1], ...).
SPYRE_API void validate(const SamplingParams& params, int64_t vocab_size);

}  // namespace spyre::runner
