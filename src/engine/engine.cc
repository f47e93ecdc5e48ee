#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/answer.h"
#include "runner/sampler.h"

namespace spyre::engine {
namespace {

constexpr int kMostFailures = 4;  // steps in a row; then the worker is taken for broken

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

EngineOptions with_clock(EngineOptions options) {
  if (!options.clock) options.clock = steady_seconds;
  return options;
}

}  // namespace

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kError:
      return "error";
  }
  SPYRE_CHECK(false, "finish reason {}", static_cast<int>(reason));
}

// A choice is the scheduler's sequence with what its reader gets.
struct Engine::Choice : Sequence {
  Choice(Live& of, const Request& request, const text::Tokenizer* tokenizer, int64_t max_model_len)
      : live(of), answer(request, tokenizer, max_model_len) {}
  Live& live;
  Answer answer;
  int32_t index = 0;
  bool parked = false;  // waits for the first choice to compute the prompt
  bool ended = false;
  double first_token_at = -1, last_token_at = -1;
  std::vector<runner::TokenLogprob> prompt_logprobs;  // until the first delta takes them along
};

struct Engine::Live {
  Request request;
  OutputCallback on_output;
  std::vector<std::unique_ptr<Choice>> choices;
  int64_t alive = 0;
  double submitted = 0;
  bool queued = true;  // no choice was scheduled yet
};

Engine::Engine(runner::Worker& worker, EngineOptions options)
    : worker_(worker),
      options_(with_clock(std::move(options))),
      cache_(std::max<int64_t>(options_.num_blocks, 2), worker.kv_cache_spec().block_size, options_.prefix_caching),
      scheduler_({.max_num_batched_tokens = worker.config().max_num_batched_tokens,
                  .max_num_seqs = worker.config().max_num_seqs,
                  .max_token_gap = options_.max_token_gap},
                 cache_, time_),
      recorder_(std::max<int64_t>(options_.flight_steps, 1), options_.origin) {
  const int64_t length = worker.config().max_model_len, needed = cache_.blocks_for(length);
  if (options_.num_blocks - 1 < needed) {
    throw_error(
        ErrorCode::kResourceExhausted,
        "a sequence of max_model_len {} needs {} KV blocks of {} tokens; the cache has {} ({} with the null block)",
        length, needed, cache_.block_size(), options_.num_blocks - 1, options_.num_blocks);
  }
  stats_.blocks_total = cache_.usable();
}

Engine::~Engine() = default;

EngineLimits Engine::limits() const {
  return {.max_model_len = worker_.config().max_model_len,
          .vocab_size = worker_.vocab_size(),
          .max_num_seqs = scheduler_.max_running(),
          .max_queue = options_.max_queue};
}

void Engine::check(const Request& request) const {
  const int64_t prompt = std::ssize(request.prompt_ids), limit = worker_.config().max_model_len;
  if (prompt == 0) throw_error(ErrorCode::kInvalidArgument, "the prompt is empty: at least one token id is needed");
  for (int64_t i = 0; i < prompt; ++i) {
    const int32_t token = request.prompt_ids[i];
    if (token >= 0 && token < worker_.vocab_size()) continue;
    throw_error(ErrorCode::kInvalidArgument, "prompt token id {} at position {} is outside the vocabulary of {}", token,
                i, worker_.vocab_size());
  }
  runner::validate(request.sampling, worker_.vocab_size());
  const int64_t room = limit - prompt;
  if (room < (request.sampling.max_tokens > 0 ? 1 : 0)) {
    throw_error(ErrorCode::kInvalidArgument,
                "the prompt has {} tokens; with max_model_len {} it may have at most {} (max_tokens is {})", prompt,
                limit, request.sampling.max_tokens > 0 ? limit - 1 : limit, request.sampling.max_tokens);
  }
  if (request.n < 1 || request.n > options_.max_queue) {
    throw_error(ErrorCode::kInvalidArgument, "n is {}, must be 1 to {}", request.n, options_.max_queue);
  }
  for (const std::string& stop : request.stop) {
    if (stop.empty()) throw_error(ErrorCode::kInvalidArgument, "stop: an empty string ends nothing");
  }
  if (!request.stop.empty() && options_.tokenizer == nullptr) {
    throw_error(ErrorCode::kInvalidArgument, "stop: the model has no tokenizer, so there is no text to look in");
  }
}

void Engine::submit(Request request, OutputCallback on_output) {
  if (dead_) throw_error(ErrorCode::kUnavailable, "the engine has ended after {} failed steps in a row", failures_);
  check(request);
  if (live_.contains(request.id)) {
    throw_error(ErrorCode::kInvalidArgument, "request id '{}' is in use", request.id);
  }
  auto owned = std::make_unique<Live>();
  Live& live = *owned;
  live.request = std::move(request);
  live.on_output = std::move(on_output);
  live.submitted = now();
  const uint64_t serial = next_serial_++;
  for (int32_t i = 0; i < live.request.n; ++i) {
    auto choice = std::make_unique<Choice>(live, live.request, options_.tokenizer, worker_.config().max_model_len);
    choice->index = i;
    // Short, and nothing a user could have chosen: workers, logs and recordings know choices by it.
    choice->id = fmt::format("{}.{}", serial, i);
    choice->tokens = live.request.prompt_ids;
    choice->prompt_length = std::ssize(live.request.prompt_ids);
    choice->sampling = live.request.sampling;
    choice->sampling.choice = i;
    if (i > 0) choice->sampling.prompt_logprobs.reset();
    choice->reads_prefix = !choice->sampling.prompt_logprobs;
    choice->cache_salt = live.request.cache_salt;
    choice->arrival = {serial, i};
    choice->parked = i > 0;
    live.choices.push_back(std::move(choice));
  }
  live.alive = live.request.n;
  parked_ += live.request.n - 1;
  ++queued_;
  scheduler_.add(*live.choices.front());
  live_.emplace(live.request.id, std::move(owned));
}

void Engine::cancel(const RequestId& id) {
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  Live& live = *found->second;
  // Last to first: the first choice's end would send the others on their way. The last one to end takes |live| along.
  for (int32_t i = live.request.n - 1; i >= 0; --i) {
    Choice& choice = *live.choices[i];
    const bool last = live.alive == 1;
    if (choice.ended) continue;
    finish(choice, FinishReason::kAbort);
    if (last) return;
  }
}

void Engine::end_all(FinishReason reason, const std::string& error) {
  while (!live_.empty()) {
    Live& live = *live_.begin()->second;
    for (int32_t i = live.request.n - 1; i >= 0; --i) {
      if (live.choices[i]->ended) continue;
      finish(*live.choices[i], reason, error);
      break;
    }
  }
}

bool Engine::step() {
  if (dead_) return false;
  const double start = now();
  ScheduledStep step = scheduler_.schedule(start);
  if (step.empty()) {
    step_end_ = -1;
    return false;
  }
  runner::StepOutput output;
  if (!run(step, output)) return true;

  const double end = now();
  if (!step.parts.empty()) {
    time_.observe(step.shape, end - start);
    ++stats_.steps;
    stats_.step_tokens.observe(static_cast<double>(step.shape.prefill_tokens + step.shape.decode_rows));
  }
  for (size_t i = 0; i < step.parts.size(); ++i) take_part(step.parts[i], output.requests[i], end);
  if (live_.empty()) step_end_ = -1;
  return true;
}

// False: the step came to nothing, and its requests have ended.
bool Engine::run(ScheduledStep& step, runner::StepOutput& output) {
  const runner::Step& recorded = recorder_.begin(std::move(step.step));
  const double start = now();
  if (step_end_ >= 0) stats_.step_gap.observe(start - step_end_);
  step_start_.store(start, std::memory_order_relaxed);
  double computed = start;
  std::string what;
  try {
    const runner::Ticket ticket = worker_.execute(recorded);
    computed = now();
    output = worker_.sample(ticket);
    SPYRE_CHECK(output.requests.size() == step.parts.size(), "{} outputs for {} requests", output.requests.size(),
                step.parts.size());
  } catch (const std::exception& error) {
    what = error.what();
    if (what.empty()) what = "the step failed";
  }
  step_start_.store(-1, std::memory_order_relaxed);
  step_end_ = now();
  if (what.empty()) {
    if (!step.parts.empty()) {
      failures_ = 0;
      stats_.forward_seconds += computed - start;
      stats_.sampling_seconds += step_end_ - computed;
    }
    recorder_.end(output, step_end_ - start);
    return true;
  }
  recorder_.fail(what);
  scheduler_.fail(recorded);
  step_failed(step, what);
  return false;
}

void Engine::step_failed(ScheduledStep& step, const std::string& what) {
  ++stats_.failed_steps;
  ++failures_;
  log().error("a step of {} requests failed ({} in a row): {}", step.parts.size(), failures_, what);
  for (const ScheduledStep::Part& part : step.parts) {
    finish(static_cast<Choice&>(*part.sequence), FinishReason::kError, what);
  }
  if (failures_ < kMostFailures) return;
  dead_ = true;
  log().error("{} steps in a row have failed: the engine ends", failures_);
  end_all(FinishReason::kError, "the engine has ended: " + what);
}

void Engine::take_part(const ScheduledStep::Part& part, runner::RequestOutput& output, double now) {
  auto& choice = static_cast<Choice&>(*part.sequence);
  SPYRE_CHECK(output.id == choice.id, "'{}' != '{}'", output.id, choice.id);
  leave_queue(choice.live);
  if (output.error) return finish(choice, FinishReason::kError, *output.error);  // nothing of it may be found again
  scheduler_.advance(part);

  // After a preemption some positions are scored again.
  const int64_t known = std::ssize(choice.prompt_logprobs) + 1 - output.prompt_logprobs_start;
  for (int64_t i = std::max<int64_t>(known, 0); i < std::ssize(output.prompt_logprobs); ++i) {
    choice.prompt_logprobs.push_back(std::move(output.prompt_logprobs[i]));
  }
  if (output.tokens.empty()) return;  // a middle chunk
  if (choice.first_token_at < 0) first_token(choice, now);
  const bool scoring = choice.sampling.max_tokens == 0;
  if (scoring) return finish(choice, FinishReason::kLength);

  if (choice.last_token_at >= 0) stats_.inter_token.observe(now - choice.last_token_at);
  choice.last_token_at = now;
  ++stats_.generation_tokens;
  choice.tokens.push_back(output.tokens.front());
  OutputDelta delta;
  try {
    choice.answer.push(output.tokens.front(), delta);
  } catch (const Error& error) {  // of the tokenizer
    delta = {.finish_reason = FinishReason::kError, .error = error.what()};
  }
  delta.logprobs = std::move(output.logprobs);
  send(choice, std::move(delta));
}

// The prompt is computed.
void Engine::first_token(Choice& choice, double now) {
  choice.first_token_at = now;
  stats_.prompt_tokens += choice.prompt_length;
  stats_.time_to_first_token.observe(now - choice.live.submitted);
  stats_.queue_time.observe(choice.first_scheduled - choice.live.submitted);
  stats_.prefill_time.observe(now - choice.first_scheduled);
  if (choice.index == 0) add_others(choice.live);
}

void Engine::add_others(Live& live) {
  for (const auto& choice : live.choices) {
    if (!std::exchange(choice->parked, false)) continue;
    --parked_;
    if (!choice->ended) scheduler_.add(*choice);
  }
}

void Engine::leave_queue(Live& live) {
  if (std::exchange(live.queued, false)) --queued_;
}

// Ends a choice for a reason that is not in its tokens.
void Engine::finish(Choice& choice, FinishReason reason, const std::string& error) {
  OutputDelta delta;
  choice.answer.finish(reason, delta);
  delta.error = error;
  send(choice, std::move(delta));
}

// Hands a delta out. With its last one the choice gives its blocks back, and the last choice takes its request along:
// neither may be used afterwards.
void Engine::send(Choice& choice, OutputDelta delta) {
  Live& live = choice.live;
  delta.choice = choice.index;
  delta.num_cached_tokens = choice.cached_tokens;
  delta.prompt_logprobs = std::exchange(choice.prompt_logprobs, {});
  const bool last = delta.finish_reason.has_value();
  if (last) {
    choice.ended = true;
    if (!choice.parked) scheduler_.end(choice);
    record_end(choice, *delta.finish_reason);
    --live.alive;
    leave_queue(live);
    if (choice.parked) {
      choice.parked = false;
      --parked_;
    } else if (choice.index == 0 && live.alive > 0) {
      add_others(live);  // it never got as far as the end of the prompt
    }
  }
  try {
    if (live.on_output) live.on_output(std::move(delta));
  } catch (const std::exception& error) {
    log().error("request '{}': its reader threw: {}", live.request.id, error.what());
  }
  if (last && live.alive == 0) live_.erase(live_.find(live.request.id));
}

void Engine::record_end(const Choice& choice, FinishReason reason) {
  ++stats_.finished[static_cast<size_t>(reason)];
  const double now = this->now();
  stats_.e2e_latency.observe(now - choice.live.submitted);
  stats_.request_prompt_tokens.observe(static_cast<double>(choice.prompt_length));
  stats_.request_generation_tokens.observe(static_cast<double>(choice.answer.tokens()));
  if (choice.last_token_at >= 0) stats_.decode_time.observe(choice.last_token_at - choice.first_token_at);
}

EngineStats Engine::stats() const {
  EngineStats out = stats_;
  out.running = std::ssize(scheduler_.running());
  out.waiting = scheduler_.num_waiting() + parked_;
  out.blocks_used = cache_.usable() - cache_.available();
  const Scheduler::Counters& counters = scheduler_.counters();
  out.preemptions = counters.preemptions;
  out.prefix_cache_queries = counters.prefix_queries;
  out.prefix_cache_hits = counters.prefix_hits;
  return out;
}

// One step of sequences that nobody waits for.
void Engine::measure_step() {
  const ScheduledStep step = scheduler_.schedule(now());
  const double start = now();
  const runner::StepOutput output = worker_.sample(worker_.execute(step.step));
  time_.observe(step.shape, now() - start);
  // Not advance(): what they compute is nothing to be found by others.
  for (size_t i = 0; i < step.parts.size(); ++i) {
    Sequence& sequence = *step.parts[i].sequence;
    sequence.computed += step.parts[i].tokens;
    const std::vector<int32_t>& tokens = output.requests[i].tokens;
    sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
  }
}

void Engine::measure_steps(double seconds) {
  SPYRE_CHECK(idle());
  const double until = now() + seconds;
  const int64_t longest = worker_.config().max_model_len, budget = worker_.config().max_num_batched_tokens;
  struct Try {
    int64_t sequences, prompt, decodes;
    int64_t joins;  // tokens of a prompt that comes beside them in the end
  };
  constexpr Try kTries[] = {{1, 16, 2, 0}, {8, 4, 3, 64}, {1, 64, 2, 128}, {1, 256, 0, 0}, {8, 4, 1, 256}};
  for (const Try& t : kTries) {
    if (now() >= until || t.prompt + t.decodes > std::min(longest, budget)) continue;
    std::vector<std::unique_ptr<Sequence>> sequences;
    const auto add = [&](int64_t tokens) {
      auto sequence = std::make_unique<Sequence>();
      sequence->id = fmt::format("measure.{}", next_serial_);
      sequence->tokens.assign(tokens, 0);
      sequence->prompt_length = tokens;
      sequence->sampling.temperature = 0;
      sequence->reads_prefix = false;
      sequence->arrival = {next_serial_++, 0};
      scheduler_.add(*sequence);
      sequences.push_back(std::move(sequence));
    };
    const int64_t count = std::min({t.sequences, scheduler_.max_running(), budget / t.prompt});
    for (int64_t i = 0; i < count; ++i) add(t.prompt);
    for (int64_t step = 0; step <= t.decodes && now() < until; ++step) measure_step();
    if (t.joins > 0 && count < scheduler_.max_running() && now() < until) {
      add(std::min({t.joins, longest, budget}));
      measure_step();
    }
    for (const auto& sequence : sequences) scheduler_.end(*sequence);
  }
  const ScheduledStep last = scheduler_.schedule(now());
  worker_.sample(worker_.execute(last.step));
}

}  // namespace spyre::engine
