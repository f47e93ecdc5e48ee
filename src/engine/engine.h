// The engine: requests in, deltas out, one step at a time. It joins the scheduler, the worker and each choice's answer,
// and keeps the account.
//
// The synchronous core: submit(), then step() until it says that there is nothing left. The choices of a request share
// the blocks of its prompt: the first one computes it, the others follow when it is in the cache. A step that throws
// ends its requests as kError; the others go on. After several such steps in a row the engine is dead: everything has
// ended, submit() throws kUnavailable.
//
// Borrows the worker, which must be initialised (initialize_kv_cache) and outlive it; nobody else may drive the worker
// meanwhile. One thread at a time, except check(), limits(), recorder() and step_start(), which any thread may call.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/client.h"
#include "engine/flight_recorder.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "engine/stats.h"
#include "runner/worker.h"
#include "text/tokenizer.h"

namespace spyre::engine {

struct EngineOptions {
  int64_t num_blocks = 0;  // as given to worker.initialize_kv_cache(): the null block included
  bool prefix_caching = true;
  double max_token_gap = 0.2;  // seconds; see the scheduler
  int64_t max_queue = 4096;    // see EngineLimits
  int64_t flight_steps = 256;  // that the flight recorder keeps; at least 1
  nlohmann::json origin;       // what a recording says about model and configuration (flight_file.h)
  // For texts. Null: ids only. Must outlive the engine.
  const text::Tokenizer* tokenizer = nullptr;
  std::function<double()> clock;  // seconds; unset: the steady clock. Tests give their own.
};

class Engine {
 public:
  // Throws Error(kResourceExhausted) with the arithmetic when the cache cannot hold one sequence of max_model_len.
  Engine(runner::Worker& worker, EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Runs a few steps to learn how long steps take, so that the first long prompt is already cut to the token gap.
  // Stops after about |seconds|. REQUIRES: idle.
  void measure_steps(double seconds);

  // Throws Error(kInvalidArgument) for a request that cannot be served (counts in the message).
  void check(const Request& request) const;
  // Throws what check() throws, kInvalidArgument for an id that is alive, kUnavailable when dead.
  void submit(Request request, OutputCallback on_output);
  // Ends all choices as kAbort. An unknown or ended id is no error. Not from inside a callback.
  void cancel(const RequestId& id);
  // Ends everything that is alive.
  void end_all(FinishReason reason, const std::string& error = "");
  // Runs one step, if there is anything to do, and calls back. False: nothing was there to do.
  bool step();

  bool idle() const { return live_.empty() && scheduler_.idle(); }
  bool dead() const { return dead_; }
  EngineLimits limits() const;
  // Requests of which no choice was scheduled yet.
  int64_t num_queued() const { return queued_; }
  EngineStats stats() const;  // without |runner|
  const StepTimeModel& step_times() const { return time_; }
  const KvCacheManager& cache() const { return cache_; }

  FlightRecorder& recorder() { return recorder_; }
  // When the step that is running was begun, by the clock; below 0 between steps.
  double step_start() const { return step_start_.load(std::memory_order_relaxed); }
  double now() const { return options_.clock(); }

 private:
  struct Live;
  struct Choice;

  bool run(ScheduledStep& step, runner::StepOutput& output);
  void take_part(const ScheduledStep::Part& part, runner::RequestOutput& output, double now);
  void first_token(Choice& choice, double now);
  void add_others(Live& live);
  void finish(Choice& choice, FinishReason reason, const std::string& error = "");
  void send(Choice& choice, OutputDelta delta);
  void leave_queue(Live& live);
  void record_end(const Choice& choice, FinishReason reason);
  void step_failed(ScheduledStep& step, const std::string& what);
  void measure_step();

  runner::Worker& worker_;
  EngineOptions options_;
  KvCacheManager cache_;
  StepTimeModel time_;
  Scheduler scheduler_;
  FlightRecorder recorder_;
  std::unordered_map<RequestId, std::unique_ptr<Live>> live_;
  uint64_t next_serial_ = 0;
  int64_t queued_ = 0, parked_ = 0;
  int failures_ = 0;  // steps in a row
  bool dead_ = false;
  std::atomic<double> step_start_{-1};
  double step_end_ = -1;  // of the last step; below 0: nobody waits for another
  EngineStats stats_;
};

}  // namespace spyre::engine
