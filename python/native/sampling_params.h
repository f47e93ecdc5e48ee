// Sampling parameters as Python gives them, vLLM's SamplingParams or our own dataclass: attributes by name, a missing
// one is its default. The GIL is held throughout.
#pragma once

#include <nanobind/nanobind.h>

#include "runner/step.h"

namespace spyre::python {

// Throws Error(kInvalidArgument) naming the field for a wrong type or a number out of range, and Error(kUnsupported)
// naming the field for one that changes the tokens and is not built (the source has the list, with what is ignored and
// why). Fields that the host itself serves (n, stop strings, detokenize, ...) are not looked at.
runner::SamplingParams read_sampling_params(nanobind::handle params);

}  // namespace spyre::python
