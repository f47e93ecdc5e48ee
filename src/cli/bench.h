// What `spyre bench` measures, apart from flags and printing.
//
// A batch, when asked for, is so many requests of the same sizes that decode together; what counts is the median time
// of a step in which all of them take part, beside the larger of what its bytes and its products take at the limits.
//
// A sample is one request of random ids through the engine. Its prefill lies between two measurements of the machine's
// compute peak and its decode between two of the memory stream (A-B-A), because a shared machine changes its mind by
// the second: a ratio is a sample's figure over the mean of the two limits around it, and what is reported is the
// median.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "cli/model_options.h"

namespace spyre::cli {

struct BenchSizes {
  int64_t prompt_tokens = 512, output_tokens = 128, repeat = 5;
  int64_t batch = 0;  // 0: none
};

// The account as JSON: machine, start, memory, prefill, decode, meters. Limits and ratios are null on a platform
// without meters. Throws Error(kInvalidArgument) when the sizes do not fit the model, kCancelled when interrupted.
nlohmann::json measure_model(OpenModel& open, const BenchSizes& sizes);

}  // namespace spyre::cli
