// The JSON of `spyre generate`: what scripts rely on.
#pragma once

#include <string>
#include <vector>

#include "runner/step.h"

namespace spyre::cli {

// {"id": 5, "logprob": -0.25, "top": [[5, -0.25], ...]}: floats with 9 digits, which a reader turns into the same
// floats again; null for a probability of 0. Written by hand: with K = -1 a list holds the vocabulary for each token,
// and a tree of JSON nodes would take ten times the memory.
void append_logprob(std::string& out, const runner::TokenLogprob& logprob);

// A list of them. |first_null|: position 0 of a prompt has none.
std::string logprobs_json(const std::vector<runner::TokenLogprob>& logprobs, bool first_null);

}  // namespace spyre::cli
