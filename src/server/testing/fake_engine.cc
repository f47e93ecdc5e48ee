#include "server/testing/fake_engine.h"

#include <algorithm>

#include "base/error.h"

namespace spyre::server::testing {

using engine::FinishReason;
using engine::OutputDelta;

namespace {

runner::TokenLogprob logprob_of(int32_t token, int32_t top) {
  runner::TokenLogprob out{.token = token, .logprob = -static_cast<float>(token % 10) / 8, .rank = token % 10 + 1};
  for (int32_t i = 0; i < top; ++i) out.top.emplace_back(10 + i, -static_cast<float>(i) / 8);
  return out;
}

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

FakeEngine::FakeEngine(const Options& options) : options_(options), thread_([this] { run(); }) {}

FakeEngine::~FakeEngine() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void FakeEngine::submit(engine::Request request, engine::OutputCallback on_output) {
  const std::lock_guard lock(mutex_);
  if (health_ == engine::EngineHealth::kDraining) throw_error(ErrorCode::kUnavailable, "the engine is draining");
  if (static_cast<int64_t>(live_.size()) >= options_.limits.max_queue) {
    throw_error(ErrorCode::kResourceExhausted, "{} requests wait already", live_.size());
  }
  SPYRE_CHECK(!live_.contains(request.id), "{} twice", request.id);
  seen_.push_back(request);
  Live live{.request = request, .on_output = std::move(on_output), .tokens = request.prompt_ids};
  live.ended.resize(static_cast<size_t>(request.n));
  live.detokenizers.resize(static_cast<size_t>(request.n));
  if (options_.tokenizer) {
    for (auto& detokenizer : live.detokenizers) detokenizer.emplace(*options_.tokenizer, request.skip_special_tokens);
  }
  if (!scripts_.empty()) {
    live.tokens = scripts_.front();
    scripts_.pop_front();
  }
  if (!failures_.empty()) {
    std::tie(live.fail_after, live.error) = failures_.front();
    failures_.pop_front();
  }
  stats_.prompt_tokens += static_cast<int64_t>(request.prompt_ids.size());
  live_.emplace(request.id, std::move(live));
  wake_.notify_all();
}

void FakeEngine::cancel(const engine::RequestId& id) {
  const std::lock_guard lock(mutex_);
  if (const auto it = live_.find(id); it != live_.end()) it->second.cancelled = true;
  wake_.notify_all();
}

engine::EngineStats FakeEngine::stats() const {
  const std::lock_guard lock(mutex_);
  engine::EngineStats out = stats_;
  out.running = static_cast<int64_t>(live_.size());
  out.blocks_total = 100;
  out.blocks_used = std::min<int64_t>(100, out.running);
  return out;
}

void FakeEngine::script(std::vector<int32_t> tokens) {
  const std::lock_guard lock(mutex_);
  scripts_.push_back(std::move(tokens));
}

void FakeEngine::fail_after(int tokens, std::string error) {
  const std::lock_guard lock(mutex_);
  failures_.emplace_back(tokens, std::move(error));
}

std::vector<engine::Request> FakeEngine::seen() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

int64_t FakeEngine::alive() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(live_.size());
}

void FakeEngine::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (live_.empty()) {
      wake_.wait(lock, [this] { return stop_ || !live_.empty(); });
      continue;
    }
    for (auto it = live_.begin(); it != live_.end();) {
      advance(it->second);
      const auto& ended = it->second.ended;
      it = std::all_of(ended.begin(), ended.end(), [](bool b) { return b; }) ? live_.erase(it) : std::next(it);
    }
    lock.unlock();
    std::this_thread::yield();  // others want the lock
    lock.lock();
    if (options_.step.count() > 0) wake_.wait_for(lock, options_.step, [this] { return stop_; });
  }
}

void FakeEngine::advance(Live& live) {
  for (int32_t c = 0; c < live.request.n; ++c) {
    if (!live.ended[static_cast<size_t>(c)]) advance_choice(live, c);
  }
  ++live.step;
}

void FakeEngine::advance_choice(Live& live, int32_t c) {
  const runner::SamplingParams& p = live.request.sampling;
  auto& detokenizer = live.detokenizers[static_cast<size_t>(c)];
  OutputDelta delta{.choice = c};
  if (live.step == 0 && c == 0 && p.prompt_logprobs) {
    for (size_t i = 1; i < live.request.prompt_ids.size(); ++i) {
      delta.prompt_logprobs.push_back(logprob_of(live.request.prompt_ids[i], *p.prompt_logprobs));
    }
  }
  if (live.cancelled) {
    delta.finish_reason = FinishReason::kAbort;
  } else if (live.fail_after >= 0 && live.step >= live.fail_after) {
    delta.finish_reason = FinishReason::kError;
    delta.error = live.error;
  } else if (p.max_tokens == 0) {
    delta.finish_reason = FinishReason::kLength;
  } else {
    const int32_t token = live.tokens[static_cast<size_t>(live.step) % live.tokens.size()];
    delta.token_ids = {token};
    if (p.logprobs) delta.logprobs = {logprob_of(token, *p.logprobs)};
    const bool eos = !p.ignore_eos && contains(p.eos_token_ids, token), stop = contains(p.stop_token_ids, token);
    if (stop && !eos) delta.stop_token = token;
    if (detokenizer && !eos && !stop) delta.text = detokenizer->push(token);
    if (eos || stop)
      delta.finish_reason = FinishReason::kStop;
    else if (live.step + 1 >= p.max_tokens)
      delta.finish_reason = FinishReason::kLength;
    ++stats_.generation_tokens;
  }
  if (delta.finish_reason) {
    if (detokenizer) delta.text += detokenizer->finish();
    live.ended[static_cast<size_t>(c)] = true;
    ++stats_.finished[static_cast<size_t>(*delta.finish_reason)];
  }
  live.on_output(std::move(delta));
}

}  // namespace spyre::server::testing
