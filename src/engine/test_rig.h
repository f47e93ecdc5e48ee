// For the tests of the engine: a worker over the echo model (real KV pages through the reference interpreter), and a
// sampler that plays a script, for tests of texts.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "runner/sampler.h"
#include "runner/testing/echo_runner.h"
#include "runner/testing/steps.h"
#include "runner/worker.h"

namespace spyre::engine::testing {

inline constexpr int32_t kVocab = 97;

inline const runner::testing::EchoModel& echo_model() {
  static const runner::testing::EchoModel model(kVocab, 128);
  return model;
}

// Draws the tokens of a script, whatever the logits say: token i of every request is script[i], then its last for ever.
class ScriptSampler final : public runner::TokenSampler {
 public:
  explicit ScriptSampler(std::vector<int32_t> script) : script_(std::move(script)) {}
  int32_t sample(const runner::RequestState& request, std::span<const float>, std::span<const uint32_t>) override {
    return script_[std::min<size_t>(request.output_length(), script_.size() - 1)];
  }

 private:
  std::vector<int32_t> script_;
};

struct RigOptions {
  int64_t max_num_batched_tokens = 16, max_model_len = 48, num_blocks = 13, max_num_seqs = 8, block_size = 4;
  std::vector<int32_t> script;
  EngineOptions engine;
};

// The worker without an engine.
struct WorkerRig {
  explicit WorkerRig(const RigOptions& o, const runner::testing::EchoModel& model = echo_model()) {
    auto owned = std::make_unique<runner::testing::EchoRunner>(model, runner::testing::EchoRunner::Output::kLogits,
                                                               o.block_size);
    runner = owned.get();
    std::unique_ptr<runner::TokenSampler> sampler;
    if (!o.script.empty()) sampler = std::make_unique<ScriptSampler>(o.script);
    worker = std::make_unique<runner::Worker>(std::move(owned),
                                              runner::WorkerConfig{.max_model_len = o.max_model_len,
                                                                   .max_num_batched_tokens = o.max_num_batched_tokens,
                                                                   .max_num_seqs = o.max_num_seqs},
                                              std::move(sampler));
    worker->initialize_kv_cache(o.num_blocks);
  }
  runner::testing::EchoRunner* runner = nullptr;
  std::unique_ptr<runner::Worker> worker;
};

struct Rig : WorkerRig {
  explicit Rig(RigOptions o = {}, const runner::testing::EchoModel& model = echo_model()) : WorkerRig(o, model) {
    o.engine.num_blocks = o.num_blocks;
    engine = std::make_unique<Engine>(*worker, o.engine);
  }
  void run() {
    while (engine->step()) {
    }
  }
  // Whatever happened, nothing is left behind.
  bool clean() const {
    return engine->idle() && worker->num_requests() == 0 && engine->cache().available() == engine->cache().usable();
  }
  std::unique_ptr<Engine> engine;
};

// What came back for one request, per choice.
struct Answers {
  explicit Answers(int32_t n = 1) : choices(n) {}
  OutputCallback callback() {
    return [this](OutputDelta&& delta) {
      auto& c = choices[delta.choice];
      if (c.finished) ++c.after_end;
      c.text += delta.text;
      c.pieces.push_back(delta.text);
      c.tokens.insert(c.tokens.end(), delta.token_ids.begin(), delta.token_ids.end());
      c.logprobs.insert(c.logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
      c.prompt_logprobs.insert(c.prompt_logprobs.end(), delta.prompt_logprobs.begin(), delta.prompt_logprobs.end());
      c.cached = delta.num_cached_tokens;
      if (!delta.finish_reason) return;
      c.finished = true;
      c.last = std::move(delta);
    };
  }
  struct One {
    std::string text;
    std::vector<std::string> pieces;
    std::vector<int32_t> tokens;
    std::vector<runner::TokenLogprob> logprobs, prompt_logprobs;
    int64_t cached = 0;
    bool finished = false;
    int after_end = 0;
    OutputDelta last;
  };
  std::vector<One> choices;
  One& operator[](size_t i) { return choices[i]; }
};

inline Request greedy(int64_t prompt, int64_t max_tokens, int32_t first = 5) {
  return {.id = "",
          .prompt_ids = runner::testing::tokens_from(first, prompt, kVocab),
          .sampling = {.temperature = 0, .max_tokens = max_tokens}};
}

template <typename Function>
std::string error_text(ErrorCode code, Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.code() == code ? error.what() : "another code: " + std::string(error.what());
  }
  return "no error";
}

inline bool same(const std::vector<runner::TokenLogprob>& a, const std::vector<runner::TokenLogprob>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].token != b[i].token || a[i].logprob != b[i].logprob || a[i].top != b[i].top) return false;
  }
  return true;
}

}  // namespace spyre::engine::testing
