// One request at a time over a worker: what `spyre generate` runs. It splits a prompt into chunks of the token budget,
// hands out KV blocks as the sequence grows, draws until a stop, a limit or the user ends it, and leaves worker and
// blocks clean on every path, errors included.
//
// Borrows the worker, which must be initialised (initialize_kv_cache) and outlive it; nobody else may drive the worker
// meanwhile. Single-threaded, except for the cancel flag, which any thread may set.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/block_pool.h"
#include "engine/request.h"
#include "runner/step.h"
#include "runner/worker.h"

namespace spyre::engine {

struct GenerateRequest {
  std::vector<int32_t> prompt_ids;
  runner::SamplingParams sampling;     // max_tokens 0: the prompt is only scored
  std::vector<int32_t> eos_token_ids;  // end the text unless sampling.ignore_eos; sampling.stop_token_ids always do
};

// Seconds by the steady clock.
struct GenerateTimings {
  double prefill = 0;        // from the start to the end of the step that ends the prompt
  double decode = 0;         // everything after it
  int64_t decode_steps = 0;  // steps after the prefill, one token each
};

struct GenerateResult {
  std::vector<int32_t> token_ids;                     // the ending token, if one was drawn, is the last
  std::vector<runner::TokenLogprob> logprobs;         // parallel to token_ids, if asked
  std::vector<runner::TokenLogprob> prompt_logprobs;  // of prompt positions 1, 2, ..., if asked (position 0 has none)
  FinishReason finish_reason = FinishReason::kLength;
  std::optional<int32_t> stop_token;  // which token ended it, for kStop
  std::string error;                  // what went wrong in the request, for kError
  GenerateTimings timings;
};

// Called with each token as it is drawn; |logprob| is null unless asked for. An exception ends the request and comes
// out of generate().
using TokenCallback = std::function<void(int32_t token, const runner::TokenLogprob* logprob)>;

class Engine {
 public:
  // |num_blocks| as given to worker.initialize_kv_cache(). Throws Error(kResourceExhausted) with the arithmetic when
  // the cache cannot hold one sequence of the worker's max_model_len.
  Engine(runner::Worker& worker, int64_t num_blocks);

  // Throws Error(kInvalidArgument) for a request that cannot be served (counts in the message), and what the worker
  // throws. What goes wrong inside the request (non-finite logits) is FinishReason::kError with what was drawn so far.
  // |cancel| is looked at between steps: FinishReason::kAbort. The engine can be used again after any of these.
  GenerateResult generate(const GenerateRequest& request, const TokenCallback& on_token = {},
                          const std::atomic<bool>* cancel = nullptr);

  int64_t free_blocks() const { return pool_.available(); }

 private:
  class Sequence;
  void check(const GenerateRequest& request) const;
  void run(const GenerateRequest& request, Sequence& sequence, const TokenCallback& on_token,
           const std::atomic<bool>* cancel, GenerateResult& result);

  runner::Worker& worker_;
  int64_t block_size_;
  BlockPool pool_;
  uint64_t next_id_ = 0;
};

}  // namespace spyre::engine
