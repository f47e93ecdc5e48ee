// The flight recorder: the last steps, as the worker saw them, so that what went wrong can be run again.
//
// It keeps step descriptions and what came of them: ids, token numbers, block numbers, sampling parameters; no text. A
// recording is self-contained: beside the steps it has the requests that were alive before the first of them, with
// their histories. Steps that fall out of the ring are folded into that beginning.
//
// begin() and end() belong to the engine's thread; any thread may take a recording at any time, also while a step
// hangs.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/step.h"

namespace spyre::engine {

struct RecordedOutput {
  std::vector<int32_t> tokens;
  std::string error;
};

struct RecordedStep {
  uint64_t number = 0;
  runner::Step step;
  enum class End : uint8_t { kRunning, kDone, kFailed } end = End::kRunning;
  std::vector<RecordedOutput> outputs;  // kDone: parallel to step.num_scheduled_tokens
  std::string fault;                    // kFailed: what was thrown
  double seconds = 0;
};

// A request as the worker knew it before the first recorded step.
struct RecordedRequest {
  std::vector<int32_t> prompt, tokens;  // tokens: prompt and what was drawn
  std::vector<int32_t> blocks;          // none: preempted
  int64_t computed = 0;
  runner::SamplingParams sampling;
};

struct Recording {
  nlohmann::json origin;  // model and configuration
  std::map<runner::RequestId, RecordedRequest> requests;
  std::vector<std::shared_ptr<const RecordedStep>> steps;  // ascending numbers, no gap
};

class FlightRecorder {
 public:
  // REQUIRES: capacity >= 1.
  FlightRecorder(int64_t capacity, nlohmann::json origin) : capacity_(capacity), origin_(std::move(origin)) {}

  // The step that is about to run; it lives here until the next begin().
  const runner::Step& begin(runner::Step step);
  void end(const runner::StepOutput& output, double seconds);
  void fail(const std::string& fault);

  Recording recording() const;

 private:
  void fold(const RecordedStep& step);
  RecordedStep& last() { return *steps_.back(); }

  const int64_t capacity_;
  const nlohmann::json origin_;
  mutable std::mutex mutex_;
  uint64_t next_ = 0;
  std::deque<std::shared_ptr<RecordedStep>> steps_;
  std::map<runner::RequestId, RecordedRequest> requests_;
};

}  // namespace spyre::engine
