// A request and what comes back from it: the words that the hosts (server, terminal) and the engine share.
//
// Plain data. A request asks for |n| choices that share one prompt; every output names its choice.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runner/step.h"

namespace spyre::engine {

using runner::RequestId;

struct Request {
  RequestId id;  // unique among the requests that are alive
  std::vector<int32_t> prompt_ids;
  // max_tokens 0: the prompt is only scored. eos_token_ids end the text unless ignore_eos; stop_token_ids always do.
  runner::SamplingParams sampling;
  int32_t n = 1;  // choices; choice i draws from (seed, i)
  // Text that ends a choice. What is sent never contains it, unless |include_stop_in_output|. Needs an engine with a
  // tokenizer, as every text does.
  std::vector<std::string> stop;
  bool include_stop_in_output = false;
  bool skip_special_tokens = true;
  // Requests with different salts never share a cached prefix.
  std::string cache_salt;
};

enum class FinishReason : uint8_t { kStop, kLength, kAbort, kError };
std::string_view to_string(FinishReason reason);  // "stop", "length", "abort", "error"

// What one step brought for one choice. The texts of a choice joined are its answer, byte for byte the same whether
// they are sent one by one or joined first: text that a later token could still change or take back (half a character,
// the beginning of a stop string) is held until it is certain. So the token ids may run ahead of the text.
struct OutputDelta {
  int32_t choice = 0;
  std::string text;                            // empty without a tokenizer
  std::vector<int32_t> token_ids;              // the ending token, if one was drawn, is the last
  std::vector<runner::TokenLogprob> logprobs;  // parallel to token_ids, if asked
  // With the first delta of choice 0, if asked: prompt positions 1, 2, ... (position 0 has none).
  std::vector<runner::TokenLogprob> prompt_logprobs;
  int64_t num_cached_tokens = 0;  // prompt tokens that the prefix cache spared; the same in each delta of a choice

  std::optional<FinishReason> finish_reason;  // set in the last delta of the choice
  std::optional<int32_t> stop_token;          // kStop: the token that ended it, unless it was an EOS token,
  std::optional<std::string> stop_string;     // or the stop string that did
  std::string error;                          // kError: what went wrong, one line
};

// Called on the engine's thread, in order; it must not block and must not throw.
using OutputCallback = std::function<void(OutputDelta&&)>;

}  // namespace spyre::engine
