// From when tokens came to what a server is judged by.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "cli/bench_load.h"

namespace spyre::cli {

// Of |values|, not empty, the one below or at which the share |q| of them lies (nearest rank); q 0: the least.
double percentile(std::vector<double> values, double q);

// What a user still finds quick: the first token, and the mean gap between the tokens after it. Seconds.
struct GoodputLimits {
  double first_token = 1.0, mean_gap = 0.1;
};

// {"requests", "failed", "errors": {text: count}, "seconds", "prompt_tokens", "output_tokens",
//  "requests_per_second", "output_tokens_per_second", "total_tokens_per_second",
//  "first_token", "token_gap", "end_to_end": {"p50", "p90", "p99", "max"} in seconds, null when there is none,
//  "goodput": {"requests_per_second", "share", the limits}}
// Time runs from the first request to the end of the last; failed requests count in "failed" and "errors" only, and
// against the goodput. A gap lies between two events, so that tokens which come together count as one.
nlohmann::json summarize(const std::vector<MixedRequest>& requests, const std::vector<LoadResult>& results,
                         const GoodputLimits& limits);

// Mean and percentiles of the lengths: {"prompt_tokens": {"mean", "p50", "p90", "p99", "max"}, "output_tokens": ...}.
nlohmann::json describe_lengths(const std::vector<MixedRequest>& requests);

// A sample of a page of Prometheus metrics, whatever its labels, summed over them; 0 when it is not there.
double metric(std::string_view page, std::string_view name);

// Rows that the card computes to fill buckets, between two pages of metrics: {"body": {"live", "padding", "share"},
// "head": ...}; a share is padding of all rows. Null for a server that does not count them.
nlohmann::json padding_between(std::string_view before, std::string_view after);

}  // namespace spyre::cli
