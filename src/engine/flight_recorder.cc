#include "engine/flight_recorder.h"

#include <algorithm>

#include "base/error.h"

namespace spyre::engine {

const runner::Step& FlightRecorder::begin(runner::Step step) {
  SPYRE_CHECK(capacity_ >= 1, "{}", capacity_);
  auto recorded = std::make_shared<RecordedStep>();
  recorded->step = std::move(step);
  const std::lock_guard lock(mutex_);
  recorded->number = next_++;
  while (std::ssize(steps_) >= capacity_) {
    fold(*steps_.front());
    steps_.pop_front();
  }
  steps_.push_back(std::move(recorded));
  return last().step;
}

void FlightRecorder::end(const runner::StepOutput& output, double seconds) {
  const std::lock_guard lock(mutex_);
  RecordedStep& step = last();
  step.outputs.reserve(output.requests.size());
  for (const runner::RequestOutput& request : output.requests) {
    step.outputs.push_back({request.tokens, request.error.value_or("")});
  }
  step.seconds = seconds;
  step.end = RecordedStep::End::kDone;
}

void FlightRecorder::fail(const std::string& fault) {
  const std::lock_guard lock(mutex_);
  last().fault = fault;
  last().end = RecordedStep::End::kFailed;
}

// What the worker knew after |step|.
void FlightRecorder::fold(const RecordedStep& recorded) {
  const runner::Step& step = recorded.step;
  for (const auto& id : step.finished) requests_.erase(id);
  for (const auto& id : step.preempted) {
    const auto found = requests_.find(id);
    if (found != requests_.end()) found->second.blocks.clear();
  }
  for (const runner::NewRequest& request : step.new_requests) {
    requests_[request.id] = {.prompt = request.prompt_token_ids,
                             .tokens = request.prefill_token_ids.value_or(request.prompt_token_ids),
                             .blocks = request.block_ids.at(0),
                             .computed = request.num_computed_tokens,
                             .sampling = request.sampling};
  }
  for (const runner::CachedRequest& request : step.cached_requests) {
    const auto found = requests_.find(request.id);
    if (found == requests_.end()) continue;
    if (request.resumed) found->second.blocks.clear();
    found->second.computed = request.num_computed_tokens;
    if (!request.new_block_ids) continue;
    const std::vector<int32_t>& blocks = request.new_block_ids->at(0);
    found->second.blocks.insert(found->second.blocks.end(), blocks.begin(), blocks.end());
  }
  if (recorded.end != RecordedStep::End::kDone) return;  // its requests end with the next step
  for (size_t i = 0; i < step.num_scheduled_tokens.size(); ++i) {
    const auto& [id, tokens] = step.num_scheduled_tokens[i];
    RecordedRequest& request = requests_[id];
    request.computed += tokens;
    const std::vector<int32_t>& drawn = recorded.outputs[i].tokens;
    request.tokens.insert(request.tokens.end(), drawn.begin(), drawn.end());
  }
}

Recording FlightRecorder::recording() const {
  const std::lock_guard lock(mutex_);
  Recording out{.origin = origin_, .requests = requests_};
  for (const auto& step : steps_) {
    // The one that is running will still be written to.
    out.steps.push_back(step->end == RecordedStep::End::kRunning ? std::make_shared<const RecordedStep>(*step) : step);
  }
  return out;
}

}  // namespace spyre::engine
