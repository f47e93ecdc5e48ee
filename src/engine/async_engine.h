// The engine on a thread of its own, for hosts with many readers.
//
// submit() and cancel() put a word into an inbox and return; the engine's thread takes it between two steps. With
// nothing to do that thread sleeps. Callbacks run on it, in order.
//
// A step cannot be interrupted: health() says kHung when one has run for too long, and a recording of it can be written
// meanwhile. The worker is borrowed and must outlive the engine; nobody else may drive it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/client.h"
#include "engine/engine.h"

namespace spyre::engine {

struct AsyncEngineOptions {
  EngineOptions engine;
  double hang_seconds = 60;          // a step that runs for longer is taken for hung
  double measure_seconds = 0.5;      // at the start, to learn how long steps take; 0: not at all
  std::filesystem::path fault_file;  // a failing step writes a recording here; empty: nowhere
};

class AsyncEngine final : public EngineClient {
 public:
  // Returns when the engine is ready. Throws what Engine's constructor and measure_steps() throw.
  AsyncEngine(runner::Worker& worker, AsyncEngineOptions options);
  // As shut_down(0).
  ~AsyncEngine() override;

  void submit(Request request, OutputCallback on_output) override;
  void cancel(const RequestId& id) override;
  EngineLimits limits() const override { return engine_.limits(); }
  EngineHealth health() const override;
  EngineStats stats() const override;

  // Nothing new is taken from now on; what is there may go on for |seconds|, then the rest ends as kAbort. Returns at
  // once; a later call can only shorten the time.
  void drain(double seconds);
  // Whether everything has ended and the thread with it.
  bool drained() const { return ended_.load(std::memory_order_acquire); }
  // drain(), and waits for the end. A step that hangs is waited for.
  void shut_down(double seconds);

  // Writes a recording of the last steps (flight_file.h), whatever the engine is doing. Throws Error when the file
  // cannot be written.
  void dump(const std::filesystem::path& path);

 private:
  struct Message {
    std::optional<Request> request;  // none: cancel |id|
    OutputCallback on_output;
    RequestId id;
  };

  void run();
  bool wait(std::vector<Message>& messages);
  void take(Message& message);
  void refuse_rest(std::vector<Message>& messages);
  void publish();
  void write_fault();

  const AsyncEngineOptions options_;
  runner::Worker& worker_;
  Engine engine_;

  mutable std::mutex mutex_;  // of the inbox, the deadline and the counters below
  std::condition_variable wake_;
  std::vector<Message> inbox_;
  std::optional<double> deadline_;  // draining

  mutable std::mutex stats_mutex_;
  EngineStats stats_;

  // Of the engine's thread.
  double runner_stats_at_ = -1e9;
  int64_t failed_steps_seen_ = 0;
  int64_t queued_inside_ = 0;  // of |queued_|: in the engine, the rest is in the inbox

  std::atomic<int64_t> queued_{0};  // requests of which nothing was scheduled yet
  std::atomic<bool> dead_{false}, ended_{false};
  std::thread thread_;
};

}  // namespace spyre::engine
