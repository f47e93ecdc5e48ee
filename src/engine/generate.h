// Requests from start to end: one alone, for a terminal, or many side by side.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace spyre::engine {

// Seconds by the engine's clock.
struct GenerateTimings {
  double prefill = 0;        // from the start to the end of the step that ends the prompt
  double decode = 0;         // everything after it
  int64_t decode_steps = 0;  // steps after the prefill, one token each
};

struct GenerateResult {
  std::string text;                                   // without a tokenizer empty
  std::vector<int32_t> token_ids;                     // the ending token, if one was drawn, is the last
  std::vector<runner::TokenLogprob> logprobs;         // parallel to token_ids, if asked
  std::vector<runner::TokenLogprob> prompt_logprobs;  // of prompt positions 1, 2, ..., if asked (position 0 has none)
  FinishReason finish_reason = FinishReason::kLength;
  std::optional<int32_t> stop_token;  // as in OutputDelta
  std::optional<std::string> stop_string;
  std::string error;              // what went wrong in the request, for kError
  int64_t num_cached_tokens = 0;  // of the prompt, found in the prefix cache
  GenerateTimings timings;
};

// Called with each delta as it comes. An exception ends the request and comes out of generate().
using DeltaCallback = std::function<void(const OutputDelta&)>;

// Runs |request| (its n must be 1) in |engine|, which must be idle. Throws what Engine::submit() throws. What goes
// wrong in the request or its steps is FinishReason::kError with what was drawn so far. |cancel| is looked at between
// steps: FinishReason::kAbort. The engine is idle again after any of these, exceptions included.
GenerateResult generate(Engine& engine, Request request, const DeltaCallback& on_delta = {},
                        const std::atomic<bool>* cancel = nullptr);

// Runs |requests| side by side in |engine|, which must be idle; requests without an id are given one. The results stand
// by request and choice; the prompt's log-probs are those of choice 0. Throws what Engine::submit() throws before
// anything has run. |between_steps| is called before each step; what it throws ends all requests and comes out. The
// engine is idle again after any of these.
std::vector<std::vector<GenerateResult>> generate_all(Engine& engine, std::vector<Request> requests,
                                                      const std::function<void()>& between_steps = {});

}  // namespace spyre::engine
