#include "engine/replay.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "base/error.h"

namespace spyre::engine {
namespace {

using runner::RequestId;

const RequestId kPrefix = "prefix";  // computes what was in the cache; the engine's own ids are numbers

std::string text_of(const RecordedOutput& output) {
  return output.error.empty() ? fmt::format("tokens [{}]", fmt::join(output.tokens, ", ")) : "error: " + output.error;
}

class Replayer {
 public:
  Replayer(runner::Worker& worker, const Recording& recording)
      : worker_(worker), recording_(recording), block_size_(worker.kv_cache_spec().block_size) {}

  ReplayReport run(const std::function<void(uint64_t)>& before_step) {
    for (const auto& [id, request] : recording_.requests) {
      if (!request.blocks.empty()) restore(id, request);
    }
    for (const auto& recorded : recording_.steps) {
      if (before_step) before_step(recorded->number);
      run_step(*recorded);
      if (report_.first) break;
    }
    return std::move(report_);
  }

 private:
  runner::StepOutput execute(const runner::Step& step) { return worker_.sample(worker_.execute(step)); }

  // Computes the first |tokens| of |request| in chunks of the budget. Afterwards the worker knows it.
  void compute(runner::NewRequest request, int64_t tokens) {
    for (int64_t done = 0; done < tokens;) {
      const int64_t chunk = std::min(tokens - done, worker_.config().max_num_batched_tokens);
      runner::Step step;
      step.num_scheduled_tokens.emplace_back(request.id, chunk);
      if (done == 0) {
        step.new_requests.push_back(request);
      } else {
        step.cached_requests.push_back({.id = request.id,
                                        .num_computed_tokens = done,
                                        .num_output_tokens = worker_.find(request.id)->output_length()});
      }
      execute(step);
      done += chunk;
    }
    filled_.insert(request.block_ids.at(0).begin(), request.block_ids.at(0).end());
  }

  // Everything but the last token: drawing what follows that one is a recorded step's.
  void restore(const RequestId& id, const RecordedRequest& request) {
    const int64_t tokens = std::min(request.computed, std::ssize(request.tokens) - 1);
    compute({.id = id,
             .prompt_token_ids = request.prompt,
             .prefill_token_ids = request.tokens,
             .block_ids = {request.blocks},
             .sampling = request.sampling},
            tokens);
  }

  // A request that found |computed| of its |tokens| in the cache finds them here too.
  void fill_prefix(std::span<const int32_t> tokens, std::span<const int32_t> blocks, int64_t computed) {
    const int64_t count = computed / block_size_;
    if (count > std::ssize(blocks) || computed > std::ssize(tokens) || computed % block_size_ != 0) {
      throw_error(ErrorCode::kCorruptData, "a prefix of {} tokens with {} blocks of {} for {} tokens", computed,
                  blocks.size(), block_size_, tokens.size());
    }
    const auto prefix = blocks.first(std::max<int64_t>(count, 0));
    if (std::all_of(prefix.begin(), prefix.end(), [&](int32_t block) { return filled_.contains(block); })) return;
    compute({.id = kPrefix,
             .prompt_token_ids = {tokens.begin(), tokens.begin() + computed},
             .block_ids = {{prefix.begin(), prefix.end()}},
             .sampling = {.temperature = 0}},
            computed);
    runner::Step end;
    end.finished = {kPrefix};
    execute(end);
  }

  // The step for a worker that does not know requests which waited, preempted, when the recording began.
  runner::Step prepared(const runner::Step& recorded) {
    runner::Step step = recorded;
    std::erase_if(step.preempted, [&](const RequestId& id) { return worker_.find(id) == nullptr; });
    std::vector<runner::CachedRequest> cached;
    for (runner::CachedRequest& request : step.cached_requests) {
      const auto waited = recording_.requests.find(request.id);
      if (!request.resumed || worker_.find(request.id) != nullptr || waited == recording_.requests.end()) {
        cached.push_back(std::move(request));
        continue;
      }
      step.new_requests.push_back({.id = request.id,
                                   .prompt_token_ids = waited->second.prompt,
                                   .prefill_token_ids = waited->second.tokens,
                                   .block_ids = request.new_block_ids.value_or(runner::BlockIds{{}}),
                                   .num_computed_tokens = request.num_computed_tokens,
                                   .sampling = waited->second.sampling});
    }
    step.cached_requests = std::move(cached);
    for (const runner::NewRequest& request : step.new_requests) {
      fill_prefix(request.prefill_token_ids ? *request.prefill_token_ids : request.prompt_token_ids,
                  request.block_ids.at(0), request.num_computed_tokens);
    }
    for (const runner::CachedRequest& request : step.cached_requests) {
      const runner::RequestState* state = worker_.find(request.id);
      if (request.resumed && state != nullptr && request.new_block_ids) {
        fill_prefix(state->tokens, request.new_block_ids->at(0), request.num_computed_tokens);
      }
    }
    return step;
  }

  void run_step(const RecordedStep& recorded) {
    const runner::Step step = prepared(recorded.step);
    runner::StepOutput output;
    try {
      output = execute(step);
    } catch (const Error& error) {
      if (recorded.end != RecordedStep::End::kFailed)
        differ(recorded, "", recorded.end == RecordedStep::End::kDone ? "done" : "did not end", error.what());
      ++report_.steps;
      return;
    }
    ++report_.steps;
    if (recorded.end == RecordedStep::End::kFailed) return differ(recorded, "", recorded.fault, "done");
    for (const auto& [id, tokens] : step.num_scheduled_tokens) {
      const runner::RequestState* state = worker_.find(id);
      if (state != nullptr) filled_.insert(state->blocks.begin(), state->blocks.end());
    }
    if (recorded.end != RecordedStep::End::kDone) return;
    for (size_t i = 0; i < output.requests.size() && !report_.first; ++i) {
      const runner::RequestOutput& request = output.requests[i];
      const RecordedOutput replayed{request.tokens, request.error.value_or("")};
      report_.tokens += std::ssize(request.tokens);
      const RecordedOutput& before = recorded.outputs[i];
      if (replayed.tokens != before.tokens || replayed.error != before.error) {
        differ(recorded, request.id, text_of(before), text_of(replayed));
      }
    }
  }

  void differ(const RecordedStep& step, const RequestId& request, std::string recorded, std::string replayed) {
    report_.first = {
        .step = step.number, .request = request, .recorded = std::move(recorded), .replayed = std::move(replayed)};
  }

  runner::Worker& worker_;
  const Recording& recording_;
  const int64_t block_size_;
  std::set<int32_t> filled_;  // blocks that hold here what they held then
  ReplayReport report_;
};

}  // namespace

ReplayReport replay(runner::Worker& worker, const Recording& recording,
                    const std::function<void(uint64_t)>& before_step) {
  return Replayer(worker, recording).run(before_step);
}

}  // namespace spyre::engine
