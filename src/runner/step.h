// The worker contract, part 1: what a scheduler tells a worker about one step, and what it gets back.
//
// The same whether our own scheduler or vLLM's calls: it covers vLLM's V1 contract (a resumed request comes among the
// cached ones with |resumed|) and V2 (a resumed request comes among the new ones under an id that is known). Plain
// data, built by the host for each step. Block ids come as one list per KV group; block 0 is the null block and never
// holds tokens.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/export.h"

namespace spyre::runner {

using RequestId = std::string;
using BlockIds = std::vector<std::vector<int32_t>>;  // [KV group][blocks]

// How the next token is drawn. Defaults are vLLM's; fields that are not built are refused where requests are checked.
struct SamplingParams {
  double temperature = 1.0;  // 0 = greedy
  double top_p = 1.0;
  int64_t top_k = 0;  // 0 or -1 = all
  double min_p = 0.0;
  std::optional<uint64_t> seed;
  int64_t max_tokens = 16;  // the host stops there; the worker does not look at it
  bool ignore_eos = false;
  std::optional<int32_t> logprobs;         // per generated token: this many top entries; -1 = the whole vocabulary
  std::optional<int32_t> prompt_logprobs;  // the same per prompt token
  std::vector<int32_t> stop_token_ids;

  double presence_penalty = 0, frequency_penalty = 0;     // [-2, 2]; count generated tokens only
  double repetition_penalty = 1;                          // > 0; counts prompt and generated tokens
  std::vector<std::pair<int32_t, float>> logit_bias;      // added to the logits; each token once
  int64_t min_tokens = 0;                                 // before that many, no ending token is drawn
  std::vector<int32_t> eos_token_ids;                     // end the text unless ignore_eos (stop_token_ids always do)
  std::optional<std::vector<int32_t>> allowed_token_ids;  // nothing else is drawn
  std::vector<std::vector<int32_t>> bad_words;  // sequences of tokens whose last one is never drawn after the others
  int32_t choice = 0;                           // choice i of a request draws from (seed, i)
};

struct NewRequest {
  RequestId id;
  std::vector<int32_t> prompt_token_ids;
  std::optional<std::vector<int32_t>> prefill_token_ids;  // V2: prompt and generated tokens, all to be computed
  BlockIds block_ids;
  int64_t num_computed_tokens = 0;  // already in the cache (prefix hit)
  SamplingParams sampling;
};

struct CachedRequest {
  RequestId id;
  bool resumed = false;                               // V1: |new_block_ids| replaces the table
  std::optional<std::vector<int32_t>> all_token_ids;  // V1: the history, for requests absent from the last step
  std::optional<BlockIds> new_block_ids;              // appended, or replacing on a resume
  int64_t num_computed_tokens = 0;                    // the scheduler's word; ours must agree unless resumed
  int64_t num_output_tokens = 0;
};

struct BlockCopy {
  int32_t from = 0, to = 0;
};

struct Step {
  std::vector<NewRequest> new_requests;
  std::vector<CachedRequest> cached_requests;
  std::vector<std::pair<RequestId, int64_t>> num_scheduled_tokens;  // in batch order; every scheduled request once
  std::vector<RequestId> finished;   // may name an id that was never scheduled; an id may be finished and new at once
  std::vector<RequestId> preempted;  // history and blocks stay as they are
  std::vector<BlockCopy> block_copies;  // done after zeroing, before the forward pass
  std::vector<int32_t> blocks_to_zero;

  int64_t total_tokens() const {
    int64_t total = 0;
    for (const auto& [id, tokens] : num_scheduled_tokens) total += tokens;
    return total;
  }
};

// Bit set = allowed. Rows follow |request_ids|, never the batch. A scheduled request without a row is unconstrained.
struct GrammarMask {
  std::vector<RequestId> request_ids;
  std::vector<std::vector<uint32_t>> rows;  // [request][ceil(vocab / 32)]
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
  int32_t rank = 1;                            // 1 = the most probable
  std::vector<std::pair<int32_t, float>> top;  // descending; ties by ascending id
};

struct RequestOutput {
  RequestId id;
  std::vector<int32_t> tokens;                // empty in a middle chunk of a prompt
  std::vector<TokenLogprob> logprobs;         // parallel to tokens, if asked
  std::vector<TokenLogprob> prompt_logprobs;  // if asked: the prompt positions this step has scored, from position
  int64_t prompt_logprobs_start = 0;          // |prompt_logprobs_start| on (position 0 has none)
  std::optional<std::string> error;           // this request failed (non-finite activations, ...); others go on
};

struct StepOutput {
  std::vector<RequestOutput> requests;  // in batch order: exactly the scheduled ones
};

}  // namespace spyre::runner
