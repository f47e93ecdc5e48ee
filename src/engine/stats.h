// What the engine counts. A snapshot is plain data, taken after a whole step: its parts agree with each other.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/request.h"

namespace spyre::engine {

// A cumulative histogram in Prometheus' sense. |bounds| are upper bounds, ascending, and live for ever; counts has one
// entry more (+Inf).
struct Histogram {
  explicit Histogram(std::span<const double> upper_bounds) : bounds(upper_bounds), counts(upper_bounds.size() + 1, 0) {}
  void observe(double value) {
    size_t i = 0;
    while (i < bounds.size() && value > bounds[i]) ++i;
    ++counts[i];
    sum += value;
  }
  int64_t total() const {
    int64_t n = 0;
    for (int64_t count : counts) n += count;
    return n;
  }

  std::span<const double> bounds;
  std::vector<int64_t> counts;  // per bucket, not yet summed up
  double sum = 0;
};

// vLLM's bounds, so that dashboards made for it fit. Seconds.
inline constexpr double kTimeToFirstTokenBounds[] = {0.001, 0.005, 0.01, 0.02,  0.04,  0.06,  0.08, 0.1,
                                                     0.25,  0.5,   0.75, 1.0,   2.5,   5.0,   7.5,  10.0,
                                                     20.0,  40.0,  80.0, 160.0, 640.0, 2560.0};
inline constexpr double kInterTokenBounds[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
                                               0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
inline constexpr double kRequestBounds[] = {0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
                                            30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
// Of what happens between two steps: tens of microseconds when all is well.
inline constexpr double kStepGapBounds[] = {1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 1e-1};
inline constexpr double kTokenCountBounds[] = {1,    2,    5,    10,    20,    50,    100,    200,    500,
                                               1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000};

struct EngineStats {
  // Now.
  int64_t running = 0, waiting = 0;
  int64_t blocks_used = 0, blocks_total = 0;  // used: referenced by a request; a cached block nobody uses is free

  // Since the start.
  int64_t prompt_tokens = 0;  // computed or found in the prefix cache
  int64_t generation_tokens = 0;
  int64_t prefix_cache_queries = 0, prefix_cache_hits = 0;  // tokens
  int64_t preemptions = 0;
  std::array<int64_t, 4> finished{};  // choices, by FinishReason
  int64_t steps = 0, failed_steps = 0;
  double forward_seconds = 0, sampling_seconds = 0;  // of steps that ended well

  // One observation per choice that reached the milestone; none for one that did not.
  Histogram time_to_first_token{kTimeToFirstTokenBounds};
  Histogram inter_token{kInterTokenBounds};
  Histogram e2e_latency{kRequestBounds};
  Histogram queue_time{kRequestBounds};
  Histogram prefill_time{kRequestBounds};
  Histogram decode_time{kRequestBounds};
  Histogram step_tokens{kTokenCountBounds};
  // From the end of a step to the beginning of the next, where there was one to begin: answers, texts, schedule.
  Histogram step_gap{kStepGapBounds};
  Histogram request_prompt_tokens{kTokenCountBounds};
  Histogram request_generation_tokens{kTokenCountBounds};

  // The runner's own account (compiles after ready, card padding, transfers): name of a metric, value.
  std::vector<std::pair<std::string, double>> runner;
};

}  // namespace spyre::engine
