// An engine without a model: it answers each request from a script, one token a step, on a thread of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "engine/client.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace spyre::server::testing {

// Without a script a request's answer is its prompt's tokens, over and over. Every token's log-probability is -(id %
// 10) / 8, the top entries are the ids 10, 11, ... from 0 down.
class FakeEngine final : public engine::EngineClient {
 public:
  struct Options {
    const text::Tokenizer* tokenizer = nullptr;
    engine::EngineLimits limits{
        .max_model_len = 512, .vocab_size = 502, .max_num_seqs = 16, .max_queue = 100, .max_logprobs = 20};
    std::chrono::microseconds step{0};  // pause between steps
  };
  explicit FakeEngine(const Options& options);
  ~FakeEngine() override;

  void submit(engine::Request request, engine::OutputCallback on_output) override;
  void cancel(const engine::RequestId& id) override;
  engine::EngineLimits limits() const override { return options_.limits; }
  engine::EngineHealth health() const override { return health_; }
  engine::EngineStats stats() const override;

  // What the next request is answered with, instead of its prompt.
  void script(std::vector<int32_t> tokens);
  // The next request fails after |tokens| tokens.
  void fail_after(int tokens, std::string error);
  void set_health(engine::EngineHealth health) { health_ = health; }
  std::vector<engine::Request> seen() const;  // every request, in order
  int64_t alive() const;                      // requests that have not ended

 private:
  struct Live {
    engine::Request request;
    engine::OutputCallback on_output;
    std::vector<int32_t> tokens;  // what it will answer; repeated
    std::vector<std::optional<text::Detokenizer>> detokenizers;
    std::vector<bool> ended;
    int64_t step = 0;
    int fail_after = -1;
    std::string error;
    bool cancelled = false;
  };

  void run();
  void advance(Live& live);
  void advance_choice(Live& live, int32_t choice);

  const Options options_;
  std::atomic<engine::EngineHealth> health_{engine::EngineHealth::kReady};
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<engine::RequestId, Live> live_;
  std::vector<engine::Request> seen_;
  std::deque<std::vector<int32_t>> scripts_;
  std::deque<std::pair<int, std::string>> failures_;
  engine::EngineStats stats_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace spyre::server::testing
