#include "engine/generate.h"

#include <exception>
#include <iterator>
#include <utility>

#include "base/error.h"

namespace spyre::engine {
namespace {

template <typename T>
void append(std::vector<T>& to, std::vector<T>&& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

class Collector {
 public:
  Collector(const Engine& engine, const DeltaCallback& on_delta)
      : engine_(engine), on_delta_(on_delta), start_(engine.now()) {}

  void take(OutputDelta&& delta) {
    const double now = engine_.now();
    if (!exception_) {
      try {
        if (on_delta_) on_delta_(delta);
      } catch (...) {
        exception_ = std::current_exception();
      }
    }
    if (!delta.token_ids.empty()) {
      if (prefilled_) ++result_.timings.decode_steps;
      if (!std::exchange(prefilled_, true)) decode_start_ = now;
    }
    result_.text += delta.text;
    append(result_.token_ids, std::move(delta.token_ids));
    append(result_.logprobs, std::move(delta.logprobs));
    append(result_.prompt_logprobs, std::move(delta.prompt_logprobs));
    result_.num_cached_tokens = delta.num_cached_tokens;
    if (!delta.finish_reason) return;
    result_.finish_reason = *delta.finish_reason;
    result_.stop_token = delta.stop_token;
    result_.stop_string = std::move(delta.stop_string);
    result_.error = std::move(delta.error);
    result_.timings.prefill = (prefilled_ ? decode_start_ : now) - start_;
    result_.timings.decode = prefilled_ ? now - decode_start_ : 0;
  }

  bool failed() const { return exception_ != nullptr; }
  GenerateResult result() {
    if (exception_) std::rethrow_exception(exception_);
    return std::move(result_);
  }

 private:
  const Engine& engine_;
  const DeltaCallback& on_delta_;
  const double start_;
  double decode_start_ = 0;
  bool prefilled_ = false;
  std::exception_ptr exception_;
  GenerateResult result_;
};

}  // namespace

GenerateResult generate(Engine& engine, Request request, const DeltaCallback& on_delta,
                        const std::atomic<bool>* cancel) {
  SPYRE_CHECK(request.n == 1 && engine.idle());
  if (request.id.empty()) request.id = "generate";
  const RequestId id = request.id;
  Collector collector(engine, on_delta);
  engine.submit(std::move(request), [&](OutputDelta&& delta) { collector.take(std::move(delta)); });
  while (!engine.idle() && !engine.dead()) {
    if (collector.failed() || (cancel != nullptr && cancel->load(std::memory_order_relaxed))) engine.cancel(id);
    engine.step();
  }
  return collector.result();
}

std::vector<std::vector<GenerateResult>> generate_all(Engine& engine, std::vector<Request> requests,
                                                      const std::function<void()>& between_steps) {
  SPYRE_CHECK(engine.idle() || engine.dead());
  static const DeltaCallback kNoCallback;
  std::vector<RequestId> ids;
  std::vector<std::vector<Collector>> collectors(requests.size());
  try {
    for (size_t i = 0; i < requests.size(); ++i) {
      Request& request = requests[i];
      if (request.id.empty()) request.id = fmt::format("generate.{}", i);
      engine.check(request);  // n among others
      for (int32_t choice = 0; choice < request.n; ++choice) collectors[i].emplace_back(engine, kNoCallback);
      ids.push_back(request.id);
      engine.submit(std::move(request),
                    [&mine = collectors[i]](OutputDelta&& delta) { mine[delta.choice].take(std::move(delta)); });
    }
    while (!engine.idle() && !engine.dead()) {
      if (between_steps) between_steps();
      engine.step();
    }
  } catch (...) {
    for (const RequestId& id : ids) engine.cancel(id);
    while (!engine.idle() && engine.step()) {
    }
    throw;
  }
  std::vector<std::vector<GenerateResult>> results(requests.size());
  for (size_t i = 0; i < results.size(); ++i) {
    for (Collector& collector : collectors[i]) results[i].push_back(collector.result());
  }
  return results;
}

}  // namespace spyre::engine
