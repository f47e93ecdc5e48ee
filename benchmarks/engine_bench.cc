// What scheduling costs: time per step with 64 sequences running and 1,000 waiting, no worker. The bound is 50 us.
//
// The running sequences decode; now and then one ends and the next is admitted, its prompt in chunks beside the others.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "engine/flight_recorder.h"
#include "engine/scheduler.h"

namespace {

using namespace spyre::engine;
using Clock = std::chrono::steady_clock;

constexpr int64_t kRunning = 64, kWaiting = 1000, kPrompt = 600, kAnswer = 400, kSteps = 4000;

double us(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

struct Traffic {
  explicit Traffic(Scheduler& to) : scheduler(to) {}
  void arrive() {
    auto s = std::make_unique<Sequence>();
    s->id = fmt::format("{}.0", next);
    for (int64_t i = 0; i < kPrompt; ++i) s->tokens.push_back(static_cast<int32_t>((i * 7 + next) % 49152));
    s->prompt_length = kPrompt;
    s->arrival = {next++, 0};
    scheduler.add(*s);
    sequences.push_back(std::move(s));
  }
  Scheduler& scheduler;
  std::vector<std::unique_ptr<Sequence>> sequences;
  uint64_t next = 0;
};

void print(const char* what, std::vector<double>& times) {
  std::sort(times.begin(), times.end());
  const auto at = [&](double share) {
    return times[static_cast<size_t>(share * static_cast<double>(times.size() - 1))];
  };
  fmt::print("{:<46} {:>9.1f} {:>9.1f} {:>9.1f}\n", what, at(0.5), at(0.99), times.back());
}

}  // namespace

int main() {
  KvCacheManager cache(64 * 10 + 1, 128);
  StepTimeModel time;
  Scheduler scheduler({.max_num_batched_tokens = 512, .max_num_seqs = kRunning, .max_token_gap = 0.2}, cache, time);
  FlightRecorder recorder(256, {});
  Traffic traffic(scheduler);
  for (int64_t i = 0; i < kRunning + kWaiting; ++i) traffic.arrive();

  std::vector<double> schedule, finish, record;
  for (int64_t n = 0; n < kSteps; ++n) {
    const Clock::time_point a = Clock::now();
    ScheduledStep step = scheduler.schedule(static_cast<double>(n));
    const Clock::time_point b = Clock::now();
    recorder.begin(std::move(step.step));
    spyre::runner::StepOutput output;
    for (const auto& part : step.parts) output.requests.push_back({.id = part.sequence->id, .tokens = {5}});
    const Clock::time_point c = Clock::now();
    recorder.end(output, 0.02);
    const Clock::time_point d = Clock::now();
    time.observe(step.shape, 0.003 + 3e-4 * static_cast<double>(step.shape.prefill_tokens + step.shape.decode_rows));
    int64_t ended = 0;
    for (const ScheduledStep::Part& part : step.parts) {
      scheduler.advance(part);
      if (part.sequence->left() > 0) continue;
      part.sequence->tokens.push_back(5);
      if (part.sequence->outputs() < kAnswer) continue;
      scheduler.end(*part.sequence);
      ++ended;
    }
    const Clock::time_point e = Clock::now();
    for (; ended > 0; --ended) traffic.arrive();
    if (std::ssize(scheduler.running()) < kRunning) continue;  // filling up
    schedule.push_back(us(b - a));
    finish.push_back(us(e - d));
    record.push_back(us(d - c));
  }
  fmt::print("{} running, {} waiting, {} steps\n{:<46} {:>9} {:>9} {:>9}\n", scheduler.running().size(),
             scheduler.num_waiting(), schedule.size(), "us per step", "median", "p99", "most");
  print("schedule", schedule);
  print("after the step (books, model of step times)", finish);
  print("flight recorder, end of step", record);
  return 0;
}
