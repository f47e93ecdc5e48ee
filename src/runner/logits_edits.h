// What a request asks to be done to its logits before a token is drawn, in vLLM's order and by its formulas:
//
//   allowed_token_ids   everything else becomes -infinity
//   bad_words           the last token of a sequence, when the generated tokens end with the others (a sequence of one
//                       token: always), becomes -infinity
//   min_tokens          until that many are generated, the ending tokens become -infinity: stop_token_ids, and
//                       eos_token_ids unless ignore_eos
//   logit_bias          x + bias
//   repetition          over every token of prompt and output: x / penalty when x > 0, else x * penalty
//   frequency, presence over generated tokens: x - frequency * count - presence
//
// In fp32; a logit that is finite stays finite (the largest number of its sign instead of an infinity).
//
// One per request, beside its history. It is built when the request is first seen and told of every token that the
// history gains, so a step costs one pass over the *distinct* tokens, whatever the length. Preemption and resume keep
// it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/export.h"
#include "runner/step.h"

namespace spyre::runner {

class SPYRE_API LogitsEdits {
 public:
  LogitsEdits() = default;  // changes nothing
  // |output|: tokens that were generated before the worker came to know the request. REQUIRES: validate(params,
  // vocab_size); tokens within the vocabulary.
  LogitsEdits(const SamplingParams& params, std::span<const int32_t> prompt, std::span<const int32_t> output,
              int64_t vocab_size);

  void append(int32_t token);  // a generated token
  bool none() const;           // apply() would change nothing now

  // Edits a copy of the request's logits. |params| as given above; |output|: all generated tokens.
  void apply(const SamplingParams& params, std::span<const int32_t> output, std::span<float> logits) const;

  int64_t generated() const { return generated_; }

 private:
  struct Seen {
    int32_t token;
    int32_t generated;  // 0: in the prompt alone
  };
  void penalise(const SamplingParams& params, std::span<float> logits) const;

  int64_t generated_ = 0;
  int64_t min_tokens_ = 0;         // 0 when no token ends the text
  std::vector<int32_t> endings_;   // what min_tokens holds back
  std::vector<uint32_t> allowed_;  // bit set = allowed; empty: everything
  std::vector<Seen> seen_;         // ascending tokens; kept when |penalised_|
  bool always_ = false, penalised_ = false;
};

// Makes -infinity of every logit whose bit in |allowed| is not set. REQUIRES: a bit for each.
SPYRE_API void mask_logits(std::span<const uint32_t> allowed, std::span<float> logits);

}  // namespace spyre::runner
