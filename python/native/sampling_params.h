// Sampling parameters as Python gives them, vLLM's SamplingParams or our own dataclass: attributes by name; one that is
// missing or None has its default (max_tokens None: no limit). The GIL is held throughout.
#pragma once

#include <nanobind/nanobind.h>

#include "runner/step.h"

namespace spyre::python {

// bad_words as text are for a host with a tokenizer: not looked at (kMayBeText), or refused where there is none any
// more (kMustBeTokens). vLLM checks a request before it has made tokens of the words, and hands it to the worker after.
enum class BadWords { kMayBeText, kMustBeTokens };

// Throws Error(kInvalidArgument) naming the field for a wrong type or a number out of range, and Error(kUnsupported)
// naming the field for one that changes the tokens and is not built (the source has the list, with what is ignored and
// why). Ranges that need no vocabulary are not looked at here: runner::validate() does that.
runner::SamplingParams read_sampling_params(nanobind::handle params, BadWords words = BadWords::kMayBeText);

}  // namespace spyre::python
