// From a row of logits to a token. Deterministic: the same logits, parameters, seed and draw counter give the same
// token on every machine (own exp, fixed order of sums, counter-based random numbers).
//
// Filters act in vLLM's order: grammar mask, temperature, min-p, top-k, top-p. Greedy (temperature below 1e-5, vLLM's
// threshold) takes the largest logit, the lowest id among equals. Log-probs are of the raw logits, before any of it, as
// vLLM's default (raw_logprobs).
//
//   weight(t) = exp((logit(t) - max) / temperature), the maximum over what the mask allows
//   min-p       keeps weight(t) >= min_p
//   top-k       keeps logit(t) >= the k-th largest: all of those that tie with it
//   top-p       keeps each t that has, in descending order (ties by ascending id), less than top_p of the kept mass
//               before it
//   draw        u * (kept mass), u in [0, 1), by ascending id; masses are sums in double, in the same order
//
// A logit of -inf is a token of probability 0. NaN or +inf anywhere in the row is an error of the model.
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
  // |logits| is the request's last row; |allowed| its grammar row or empty (bits past the vocabulary are ignored).
  // Throws Error(kInvalidArgument) when the mask allows nothing of finite logit, or is shorter than the vocabulary, and
  // Error(kUnsupported) when the row has a NaN or +inf (the model overflows in this dtype).
  virtual int32_t sample(const RequestState& request, std::span<const float> logits,
                         std::span<const uint32_t> allowed) = 0;
};

// A request without a seed draws from |default_seed| and its id; one with a seed from the seed alone, so that the same
// seeded request gives the same tokens in any batch. Single-threaded (it reuses its buffers).
class SPYRE_API Sampler final : public TokenSampler {
 public:
  explicit Sampler(uint64_t default_seed = 0) : default_seed_(default_seed) {}
  int32_t sample(const RequestState& request, std::span<const float> logits,
                 std::span<const uint32_t> allowed) override;

 private:
  struct Candidate {
    uint64_t key;  // ascending keys are descending logits; the low half is the token
    float logit;
    float weight;
    int32_t token() const { return static_cast<int32_t>(key); }
  };

  void keep_top_k(int64_t k);
  void weigh(float highest, const SamplingParams& params);  // fills in the weights, applies min-p
  void keep_top_p(double top_p);

  uint64_t default_seed_;
  std::vector<Candidate> candidates_;  // ascending ids
  std::vector<uint64_t> keys_;
};

// Throws Error(kUnsupported) naming the first token whose logit is NaN or +inf.
SPYRE_API void check_finite(std::span<const float> logits);

// log-softmax of |logits| at |token|, its rank, and the |top| largest entries (-1 = all). Rank and |top| share one
// order: descending, ties by ascending id. REQUIRES: check_finite(logits), some logit finite.
SPYRE_API TokenLogprob token_logprob(std::span<const float> logits, int32_t token, int32_t top);

// Range checks of the request's own fields against the model's limits: throws Error(kInvalidArgument) naming the field
// and the value (NaN temperature, top_p outside (0, 1], ...). max_tokens 0 is allowed: the prompt is only scored.
SPYRE_API void validate(const SamplingParams& params, int64_t vocab_size);

}  // namespace spyre::runner
