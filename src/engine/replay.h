// Runs a recording again and compares what comes out, token by token.
//
// Equal bits are promised whatever a step's neighbours, chunks and history of the cache, so the same steps give the
// same tokens; the first difference is where hardware, build, model or the engine's books went wrong. What the recorded
// steps found in the cache from before the first one is computed first.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "engine/flight_recorder.h"
#include "runner/worker.h"

namespace spyre::engine {

struct ReplayReport {
  int64_t steps = 0, tokens = 0;  // run again; compared
  struct Difference {
    uint64_t step = 0;
    runner::RequestId request;       // empty: the whole step
    std::string recorded, replayed;  // tokens or errors, as text
  };
  std::optional<Difference> first;  // the replay ends with it
};

// |worker| has a fresh KV cache with the recording's limits. |before_step| is called with each step's number; it may
// throw to stop. Throws what the worker throws while the beginning is computed, and kCorruptData for steps that it
// refuses.
ReplayReport replay(runner::Worker& worker, const Recording& recording,
                    const std::function<void(uint64_t)>& before_step = {});

}  // namespace spyre::engine
