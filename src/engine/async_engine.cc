#include "engine/async_engine.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/flight_file.h"

namespace spyre::engine {
namespace {

constexpr double kRunnerStatsEvery = 1;  // second: the runner's report is not free

// The runner's own account, by the names of metrics. A platform without an account has zeros: nothing is compiled
// there, and nothing moved.
std::vector<std::pair<std::string, double>> runner_stats(const runner::Worker& worker) {
  const nlohmann::json artifacts = worker.report("artifacts"), transfers = worker.report("transfers"),
                       rows = worker.report("rows");
  std::vector<std::pair<std::string, double>> out = {
      {"spyre_compiles_after_ready_total", artifacts.is_object() ? artifacts.value("compiles_after_ready", 0.0) : 0.0}};
  for (const char* direction : {"to_device", "to_host"}) {
    double count = 0, card = 0, logical = 0;
    if (transfers.is_object()) {
      for (const auto& [label, t] : transfers["since_ready"][direction].items()) {
        count += t.value("count", 0.0);
        card += t.value("card_bytes", 0.0);
        logical += t.value("logical_bytes", 0.0);
      }
    }
    out.emplace_back(fmt::format("spyre_transfers_{}_total", direction), count);
    out.emplace_back(fmt::format("spyre_transfer_card_bytes_{}_total", direction), card);
    out.emplace_back(fmt::format("spyre_transfer_padding_bytes_{}_total", direction), card - logical);
  }
  for (const char* part : {"body", "head"}) {
    for (const char* kind : {"live", "padding"})
      out.emplace_back(fmt::format("spyre_{}_rows_{}_total", kind, part),
                       rows.is_object() ? rows.value(part, nlohmann::json::object()).value(kind, 0.0) : 0.0);
  }
  return out;
}

}  // namespace

AsyncEngine::AsyncEngine(runner::Worker& worker, AsyncEngineOptions options)
    : options_(std::move(options)), worker_(worker), engine_(worker, options_.engine) {
  if (options_.measure_seconds > 0) engine_.measure_steps(options_.measure_seconds);
  publish();
  thread_ = std::thread([this] { run(); });
}

AsyncEngine::~AsyncEngine() {
  shut_down(0);
}

void AsyncEngine::submit(Request request, OutputCallback on_output) {
  engine_.check(request);
  const std::lock_guard lock(mutex_);
  if (dead_) throw_error(ErrorCode::kUnavailable, "the engine has ended");
  if (deadline_) throw_error(ErrorCode::kUnavailable, "the engine is shutting down");
  const int64_t queued = queued_.load(std::memory_order_relaxed), most = options_.engine.max_queue;
  if (queued >= most) {
    throw_error(ErrorCode::kResourceExhausted, "{} requests are waiting; the queue takes at most {}", queued, most);
  }
  ++queued_;
  inbox_.push_back({.request = std::move(request), .on_output = std::move(on_output)});
  wake_.notify_one();
}

void AsyncEngine::cancel(const RequestId& id) {
  const std::lock_guard lock(mutex_);
  inbox_.push_back({.id = id});
  wake_.notify_one();
}

EngineHealth AsyncEngine::health() const {
  if (dead_) return EngineHealth::kDead;
  const double start = engine_.step_start();
  if (start >= 0 && engine_.now() - start > options_.hang_seconds) return EngineHealth::kHung;
  const std::lock_guard lock(mutex_);
  return deadline_ ? EngineHealth::kDraining : EngineHealth::kReady;
}

EngineStats AsyncEngine::stats() const {
  EngineStats out;
  {
    const std::lock_guard lock(stats_mutex_);
    out = stats_;
  }
  return out;
}

void AsyncEngine::drain(double seconds) {
  const double deadline = engine_.now() + seconds;
  const std::lock_guard lock(mutex_);
  if (!deadline_ || deadline < *deadline_) deadline_ = deadline;
  wake_.notify_one();
}

void AsyncEngine::shut_down(double seconds) {
  drain(seconds);
  if (thread_.joinable()) thread_.join();
}

void AsyncEngine::dump(const std::filesystem::path& path) {
  write_recording(engine_.recorder().recording(), path);
}

void AsyncEngine::run() {
  std::vector<Message> messages;
  try {
    while (wait(messages)) {
      for (Message& message : messages) take(message);
      messages.clear();
      engine_.step();
      publish();
      if (engine_.dead()) break;
    }
  } catch (const std::exception& error) {
    log().error("the engine's thread ends: {}", error.what());
    engine_.end_all(FinishReason::kError, error.what());
    dead_ = true;
  }
  if (engine_.dead()) dead_ = true;
  refuse_rest(messages);
  publish();
  ended_.store(true, std::memory_order_release);
}

// The words that came since; sleeps while there are none and nothing to do. False: everything is over.
bool AsyncEngine::wait(std::vector<Message>& messages) {
  std::unique_lock lock(mutex_);
  if (engine_.idle()) wake_.wait(lock, [this] { return !inbox_.empty() || deadline_; });
  messages.swap(inbox_);
  if (!deadline_) return true;
  const bool late = engine_.now() >= *deadline_;
  lock.unlock();
  if (late) {
    for (Message& message : messages) take(message);
    messages.clear();
    engine_.end_all(FinishReason::kAbort);
  }
  return !engine_.idle() || !messages.empty();
}

void AsyncEngine::take(Message& message) {
  if (!message.request) return engine_.cancel(message.id);
  const OutputCallback on_output = message.on_output;
  try {
    engine_.submit(std::move(*message.request), std::move(message.on_output));
    ++queued_inside_;
  } catch (const Error& error) {  // an id in use: the rest was checked
    --queued_;
    on_output({.finish_reason = FinishReason::kError, .error = error.what()});
  }
  message.request.reset();
}

// dead_ is set or a deadline is: nothing comes after |messages| and the inbox.
void AsyncEngine::refuse_rest(std::vector<Message>& messages) {
  {
    const std::lock_guard lock(mutex_);
    if (!deadline_) deadline_ = engine_.now();
    std::move(inbox_.begin(), inbox_.end(), std::back_inserter(messages));
    inbox_.clear();
  }
  for (Message& message : messages) {
    if (message.request) message.on_output({.finish_reason = FinishReason::kError, .error = "the engine has ended"});
  }
}

// After a whole step: the account, and what a failed step leaves behind.
void AsyncEngine::publish() {
  queued_ -= queued_inside_ - engine_.num_queued();
  queued_inside_ = engine_.num_queued();
  EngineStats stats = engine_.stats();
  const bool failed = std::exchange(failed_steps_seen_, stats.failed_steps) < stats.failed_steps;
  const double now = engine_.now();
  const bool refresh = engine_.idle() || now - runner_stats_at_ > kRunnerStatsEvery;
  if (refresh) {
    stats.runner = runner_stats(worker_);
    runner_stats_at_ = now;
  }
  {
    const std::lock_guard lock(stats_mutex_);
    if (!refresh) stats.runner = std::move(stats_.runner);
    stats_ = std::move(stats);
  }
  if (failed) write_fault();
}

void AsyncEngine::write_fault() {
  if (options_.fault_file.empty()) return;
  try {
    dump(options_.fault_file);
    log().error("the last steps are recorded in '{}'", options_.fault_file.string());
  } catch (const std::exception& error) {
    log().error("the recording could not be written: {}", error.what());
  }
}

}  // namespace spyre::engine
