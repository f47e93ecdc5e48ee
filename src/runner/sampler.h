// From a row of logits to a token. Deterministic: the same logits, parameters, seed and draw counter give the same
// token on every machine (own exp, fixed order of sums, counter-based random numbers).
//
// In vLLM's order: grammar mask, then the edits of the request (logits_edits.h: allowed tokens, bad words, min_tokens,
// bias, penalties), then temperature, min-p, top-k, top-p. Greedy (temperature below 1e-5, vLLM's threshold) takes the
// largest edited logit, the lowest id among equals. Log-probs are of the raw logits, before any of it, as is vLLM's
// default (raw_logprobs).
//
//   weight(t) = exp((logit(t) - max) * (1 / temperature)), the maximum over what can be drawn
//   min-p       keeps weight(t) >= min_p
//   top-k       keeps logit(t) >= the k-th largest: all of those that tie with it
//   top-p       keeps each t that has, in descending order (ties by ascending id), less than top_p of the kept mass
//               before it
//   draw        u * (kept mass), u in [0, 1), by ascending id
//
// Masses are sums in double by ascending id; those of a whole row are of blocks summed in fp32 (vocab_kernels.h). Where
// weights are added by rank, they are taken in units of 2^-40, so that no order of additions matters.
//
// A logit of -inf is a token of probability 0. NaN or +inf anywhere in the raw row is an error of the model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/export.h"
#include "runner/input_batch.h"
#include "runner/step.h"
#include "runner/vocab_row.h"

namespace spyre::runner {

class SPYRE_API TokenSampler {
 public:
  virtual ~TokenSampler() = default;
  // |logits| is the request's last row; |allowed| its grammar row or empty (bits past the vocabulary are ignored).
  // Throws Error(kInvalidArgument) when nothing of finite logit is left to draw, or the mask is shorter than the
  // vocabulary, and Error(kUnsupported) when the row has a NaN or +inf (the model overflows in this dtype).
  virtual int32_t sample(const RequestState& request, std::span<const float> logits,
                         std::span<const uint32_t> allowed) = 0;
  // token_logprob() of |logits|, the row that sample() was called with last: what is known of it is used.
  virtual TokenLogprob logprob(std::span<const float> logits, int32_t token, int32_t top);
};

// A request without a seed draws from |default_seed| and its id; one with a seed from the seed alone, so that the same
// seeded request gives the same tokens in any batch. Either way each choice has a stream of its own. Single-threaded
// (it reuses its buffers); two samplers give the same tokens.
class SPYRE_API Sampler final : public TokenSampler {
 public:
  explicit Sampler(uint64_t default_seed = 0) : default_seed_(default_seed) {}
  Sampler(uint64_t default_seed, const VocabKernels& kernels)
      : default_seed_(default_seed), raw_(kernels), edited_row_(kernels) {}
  int32_t sample(const RequestState& request, std::span<const float> logits,
                 std::span<const uint32_t> allowed) override;
  TokenLogprob logprob(std::span<const float> logits, int32_t token, int32_t top) override;

 private:
  struct Candidate {
    uint64_t key;  // ascending keys are descending logits; the low half is the token
    float weight;
    int32_t token() const { return static_cast<int32_t>(key); }
  };

  // The row to draw from: |logits|, or an edited copy.
  std::span<const float> edited(const RequestState& request, std::span<const float> logits,
                                std::span<const uint32_t> allowed);
  void keep_top_k(const SamplingParams& params, float inverse);
  void keep_min_p(float min_p);
  void cut_top_p(float inverse, double top_p);
  uint64_t last_of_top_p(double before, double wanted);
  int32_t draw_candidate(double u) const;
  int32_t draw_row(double u) const;

  uint64_t default_seed_;
  VocabRow raw_, edited_row_;
  VocabRow* row_ = &raw_;  // the one that is drawn from
  std::vector<float> edited_;
  std::vector<Candidate> candidates_;  // ascending ids
  std::vector<Candidate> selection_;
  std::vector<uint64_t> keys_;
};

// Throws Error(kUnsupported) naming the first token whose logit is NaN or +inf.
SPYRE_API void check_finite(std::span<const float> logits);

// log-softmax of a scanned row at |token|, its rank, and the |top| largest entries (-1 = all). Rank and |top| share one
// order: descending, ties by ascending id. REQUIRES: some logit is finite, which scan() does not check.
SPYRE_API TokenLogprob token_logprob(VocabRow& row, int32_t token, int32_t top);
SPYRE_API TokenLogprob token_logprob(std::span<const float> logits, int32_t token, int32_t top);

// Range checks of the request's own fields against the model's limits: throws Error(kInvalidArgument) naming the field
// and the value (NaN temperature, top_p outside (0, 1], ...). max_tokens 0 is allowed: the prompt is only scored.
SPYRE_API void validate(const SamplingParams& params, int64_t vocab_size);

}  // namespace spyre::runner
