#include "engine/async_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <random>
#include <thread>

#include "engine/flight_file.h"
#include "engine/test_rig.h"

namespace spyre::engine {
namespace {

using testing::error_text;
using testing::greedy;
using ::testing::HasSubstr;
using testing::kVocab;
using testing::WorkerRig;

AsyncEngineOptions options(int64_t num_blocks = 13) {
  return {.engine = {.num_blocks = num_blocks}, .measure_seconds = 0};
}

// One request, whose end can be waited for.
class Reader {
 public:
  OutputCallback callback() {
    return [this](OutputDelta&& delta) {
      tokens += std::ssize(delta.token_ids);
      if (!delta.finish_reason) return;
      if (++ends == 1) end_.set_value(std::move(delta));
    };
  }
  OutputDelta wait() { return future_.get(); }
  std::atomic<int64_t> tokens{0};
  std::atomic<int> ends{0};

 private:
  std::promise<OutputDelta> end_;
  std::future<OutputDelta> future_ = end_.get_future();
};

Request request(const std::string& id, int64_t prompt, int64_t tokens) {
  Request r = greedy(prompt, tokens);
  r.id = id;
  return r;
}

TEST(AsyncEngine, ServesManyThreads) {
  WorkerRig rig({.num_blocks = 20, .max_num_seqs = 4});
  AsyncEngine engine(*rig.worker, options(20));
  constexpr int kThreads = 6, kEach = 25;
  std::vector<std::unique_ptr<Reader>> readers;
  for (int i = 0; i < kThreads * kEach; ++i) readers.push_back(std::make_unique<Reader>());
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < kEach; ++i) {
        const int index = t * kEach + i;
        engine.submit(request(std::to_string(index), 1 + random() % 30, 1 + random() % 12), readers[index]->callback());
        if (random() % 4 == 0) engine.cancel(std::to_string(t * kEach + random() % (i + 1)));
        if (random() % 8 == 0) (void)engine.stats();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& reader : readers) reader->wait();
  engine.shut_down(10);
  for (const auto& reader : readers) EXPECT_EQ(reader->ends, 1);
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.finished[0] + stats.finished[1] + stats.finished[2], kThreads * kEach);
  EXPECT_EQ(stats.running + stats.waiting + stats.blocks_used, 0);
  EXPECT_EQ(rig.worker->num_requests(), 0);
  EXPECT_EQ(stats.runner.front().first, "spyre_compiles_after_ready_total");
  EXPECT_EQ(stats.runner.back(), (std::pair<std::string, double>("spyre_padding_rows_head_total", 0)));
}

TEST(AsyncEngine, SleepsWhenThereIsNothingToDo) {
  WorkerRig rig({});
  AsyncEngine engine(*rig.worker, options());
  Reader reader;
  engine.submit(request("a", 5, 3), reader.callback());
  reader.wait();
  const auto cpu = [] {
    rusage use{};
    getrusage(RUSAGE_SELF, &use);
    return use.ru_utime.tv_sec + use.ru_stime.tv_sec +
           1e-6 * static_cast<double>(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
  };
  const double before = cpu();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(cpu() - before, 0.1);
}

// A worker that stands still until it is let go.
struct Gate {
  explicit Gate(WorkerRig& rig) {
    rig.runner->before_forward = [this](const runner::ForwardBatch&) {
      inside = true;
      opened.wait();
    };
  }
  void wait_inside() const {
    while (!inside) std::this_thread::yield();
  }
  std::promise<void> go;
  std::shared_future<void> opened = go.get_future().share();
  std::atomic<bool> inside{false};
};

TEST(AsyncEngine, AStepThatHangsIsSeenAndRecorded) {
  WorkerRig rig({});
  Gate gate(rig);
  AsyncEngineOptions o = options();
  o.hang_seconds = 0.02;
  AsyncEngine engine(*rig.worker, o);
  EXPECT_EQ(engine.health(), EngineHealth::kReady);
  Reader reader;
  engine.submit(request("a", 5, 1), reader.callback());
  gate.wait_inside();
  while (engine.health() != EngineHealth::kHung) std::this_thread::yield();
  const std::filesystem::path file = std::filesystem::path(::testing::TempDir()) / "hung.json";
  engine.dump(file);
  const Recording recording = read_recording(file);
  ASSERT_EQ(recording.steps.size(), 1u);
  EXPECT_EQ(recording.steps[0]->end, RecordedStep::End::kRunning);
  gate.go.set_value();
  EXPECT_EQ(reader.wait().finish_reason, FinishReason::kLength);
  EXPECT_EQ(engine.health(), EngineHealth::kReady);
  std::filesystem::remove(file);
}

TEST(AsyncEngine, TheQueueHasAnEnd) {
  WorkerRig rig({.max_num_seqs = 1});
  Gate gate(rig);
  AsyncEngineOptions o = options();
  o.engine.max_queue = 2;
  AsyncEngine engine(*rig.worker, o);
  Reader readers[5];
  engine.submit(request("0", 5, 1), readers[0].callback());
  gate.wait_inside();
  engine.submit(request("1", 5, 1), readers[1].callback());
  // The first one still counts as waiting: its first step has not ended.
  EXPECT_THAT(
      error_text(ErrorCode::kResourceExhausted, [&] { engine.submit(request("2", 5, 1), readers[2].callback()); }),
      HasSubstr("2 requests are waiting; the queue takes at most 2"));
  gate.go.set_value();
  readers[0].wait();
  readers[1].wait();
  rig.runner->before_forward = nullptr;
  engine.submit(request("3", 5, 1), readers[3].callback());
  EXPECT_EQ(readers[3].wait().finish_reason, FinishReason::kLength);
  EXPECT_EQ(readers[2].ends, 0);
}

TEST(AsyncEngine, DrainingFinishesWhatRunsUntilTheDeadline) {
  WorkerRig rig({.max_model_len = 120, .num_blocks = 40});
  AsyncEngine engine(*rig.worker, options(40));
  Reader quick, slow;
  rig.runner->before_forward = [](const runner::ForwardBatch&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  };
  engine.submit(request("quick", 5, 3), quick.callback());
  engine.submit(request("slow", 5, 100), slow.callback());
  engine.drain(0.05);
  EXPECT_EQ(engine.health(), EngineHealth::kDraining);
  EXPECT_THAT(error_text(ErrorCode::kUnavailable, [&] { engine.submit(request("late", 5, 1), {}); }),
              HasSubstr("shutting down"));
  EXPECT_EQ(quick.wait().finish_reason, FinishReason::kLength);
  EXPECT_EQ(slow.wait().finish_reason, FinishReason::kAbort);
  engine.shut_down(0);
  EXPECT_TRUE(engine.drained());
}

TEST(AsyncEngine, ADeadEngineEndsEverythingAndRefuses) {
  WorkerRig rig({.max_num_seqs = 1});
  rig.runner->before_forward = [](const runner::ForwardBatch&) { throw std::runtime_error("broken"); };
  AsyncEngineOptions o = options();
  o.fault_file = std::filesystem::path(::testing::TempDir()) / "fault.json";
  AsyncEngine engine(*rig.worker, o);
  Reader readers[6];
  for (int i = 0; i < 6; ++i) {
    try {
      engine.submit(request(std::to_string(i), 5, 1), readers[i].callback());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
      ++readers[i].ends;
      continue;
    }
    if (i >= 3) {
      EXPECT_EQ(readers[i].wait().finish_reason, FinishReason::kError);
    }
  }
  while (engine.health() != EngineHealth::kDead) std::this_thread::yield();
  EXPECT_THROW(engine.submit(request("x", 5, 1), {}), Error);
  engine.shut_down(0);
  for (const Reader& reader : readers) EXPECT_EQ(reader.ends, 1);
  EXPECT_EQ(read_recording(o.fault_file).steps.back()->fault, "broken");
  std::filesystem::remove(o.fault_file);
}

TEST(AsyncEngine, AnIdInUseIsAnErrorOfTheSecondOne) {
  WorkerRig rig({});
  Gate gate(rig);
  AsyncEngine engine(*rig.worker, options());
  Reader first, second;
  engine.submit(request("same", 5, 1), first.callback());
  gate.wait_inside();
  engine.submit(request("same", 5, 1), second.callback());
  gate.go.set_value();
  EXPECT_EQ(first.wait().finish_reason, FinishReason::kLength);
  const OutputDelta end = second.wait();
  // The first may have ended before the second was looked at.
  if (end.finish_reason == FinishReason::kError) {
    EXPECT_THAT(end.error, HasSubstr("'same' is in use"));
  }
}

}  // namespace
}  // namespace spyre::engine
