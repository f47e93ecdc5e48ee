#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "runner/sampler.h"

namespace spyre::engine {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
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

// The sequence being generated: what the worker knows of it, and its blocks. Building steps is its work; giving blocks
// back and telling the worker is its destructor's, so that it happens on every path.
class Engine::Sequence {
 public:
  Sequence(runner::Worker& worker, BlockPool& pool, int64_t block_size, runner::RequestId id,
           const GenerateRequest& request)
      : worker_(worker), pool_(pool), block_size_(block_size), id_(std::move(id)), request_(request) {}
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  ~Sequence() {
    for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) pool_.give_back(*block);
    if (!submitted_) return;
    try {
      runner::Step end;
      end.finished = {id_};
      worker_.sample(worker_.execute(end));
    } catch (const std::exception& error) {
      log().error("the worker would not forget request '{}': {}", id_, error.what());
    }
  }

  int64_t length() const { return std::ssize(request_.prompt_ids) + outputs_; }
  int64_t left() const { return length() - computed_; }  // known tokens that are not computed

  // Runs |tokens| more of it.
  runner::RequestOutput advance(int64_t tokens) {
    const runner::Step step = next_step(tokens);
    submitted_ = true;
    runner::StepOutput output = worker_.sample(worker_.execute(step));
    SPYRE_CHECK(output.requests.size() == 1, "{} outputs for one request", output.requests.size());
    computed_ += tokens;
    outputs_ += std::ssize(output.requests[0].tokens);
    return std::move(output.requests[0]);
  }

 private:
  runner::Step next_step(int64_t tokens) {
    std::vector<int32_t> added;
    while (std::ssize(blocks_) * block_size_ < computed_ + tokens) {
      blocks_.push_back(pool_.take());
      added.push_back(blocks_.back());
    }
    runner::Step step;
    step.num_scheduled_tokens.emplace_back(id_, tokens);
    if (!submitted_) {
      step.new_requests.push_back({.id = id_,
                                   .prompt_token_ids = request_.prompt_ids,
                                   .block_ids = {std::move(added)},
                                   .sampling = request_.sampling});
      return step;
    }
    runner::CachedRequest cached{.id = id_, .num_computed_tokens = computed_, .num_output_tokens = outputs_};
    if (!added.empty()) cached.new_block_ids = runner::BlockIds{std::move(added)};
    step.cached_requests.push_back(std::move(cached));
    return step;
  }

  runner::Worker& worker_;
  BlockPool& pool_;
  const int64_t block_size_;
  const runner::RequestId id_;
  const GenerateRequest& request_;
  std::vector<int32_t> blocks_;
  int64_t computed_ = 0, outputs_ = 0;
  bool submitted_ = false;
};

Engine::Engine(runner::Worker& worker, int64_t num_blocks)
    : worker_(worker), block_size_(worker.kv_cache_spec().block_size), pool_(std::max<int64_t>(num_blocks, 1)) {
  const int64_t length = worker.config().max_model_len;
  const int64_t needed = (length + block_size_ - 1) / block_size_;
  if (pool_.usable() < needed) {
    throw_error(
        ErrorCode::kResourceExhausted,
        "a sequence of max_model_len {} needs {} KV blocks of {} tokens; the cache has {} ({} with the null block)",
        length, needed, block_size_, pool_.usable(), num_blocks);
  }
}

void Engine::check(const GenerateRequest& request) const {
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
}

GenerateResult Engine::generate(const GenerateRequest& request, const TokenCallback& on_token,
                                const std::atomic<bool>* cancel) {
  check(request);
  GenerateResult result;
  Sequence sequence(worker_, pool_, block_size_, "generate-" + std::to_string(next_id_++), request);
  run(request, sequence, on_token, cancel, result);
  return result;
}

void Engine::run(const GenerateRequest& request, Sequence& sequence, const TokenCallback& on_token,
                 const std::atomic<bool>* cancel, GenerateResult& result) {
  const runner::SamplingParams& sampling = request.sampling;
  const Clock::time_point start = Clock::now();
  std::optional<Clock::time_point> decode_start;
  const auto finish = [&](FinishReason reason) {
    result.finish_reason = reason;
    if (decode_start) result.timings.decode = seconds_since(*decode_start);
  };

  while (true) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) return finish(FinishReason::kAbort);
    runner::RequestOutput output = sequence.advance(std::min(sequence.left(), worker_.config().max_num_batched_tokens));
    if (output.error) {
      result.error = *output.error;
      return finish(FinishReason::kError);
    }
    std::move(output.prompt_logprobs.begin(), output.prompt_logprobs.end(), std::back_inserter(result.prompt_logprobs));
    if (output.tokens.empty()) continue;  // a middle chunk of the prompt

    if (decode_start) {
      ++result.timings.decode_steps;
    } else {
      result.timings.prefill = seconds_since(start);
      decode_start = Clock::now();
    }
    if (sampling.max_tokens == 0) return finish(FinishReason::kLength);
    const int32_t token = output.tokens.front();
    result.token_ids.push_back(token);
    if (sampling.logprobs) result.logprobs.push_back(std::move(output.logprobs.front()));
    if (on_token) on_token(token, sampling.logprobs ? &result.logprobs.back() : nullptr);

    // vLLM's order: an ending token wins over a limit reached at the same time.
    if ((!sampling.ignore_eos && contains(request.eos_token_ids, token)) || contains(sampling.stop_token_ids, token)) {
      result.stop_token = token;
      return finish(FinishReason::kStop);
    }
    const bool full = sequence.length() >= worker_.config().max_model_len;
    if (full || std::ssize(result.token_ids) >= sampling.max_tokens) return finish(FinishReason::kLength);
  }
}

}  // namespace spyre::engine
