#include "runner/step_plan.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"

namespace spyre::runner {
namespace {

template <typename... Args>
[[noreturn]] void refuse(const RequestId& id, fmt::format_string<Args...> format, Args&&... args) {
  throw_error(ErrorCode::kInvalidArgument, "request '{}': {}", id, fmt::format(format, std::forward<Args>(args)...));
}

std::span<const int32_t> only_group(const RequestId& id, const BlockIds& blocks) {
  if (blocks.size() != 1) refuse(id, "block ids come in {} KV cache groups; this worker has 1", blocks.size());
  return blocks[0];
}

class Planner {
 public:
  Planner(const Step& step, const InputBatchLimits& limits, const RequestMap& requests, BlockMarks& marks)
      : step_(step), limits_(limits), requests_(requests), marks_(marks) {
    finished_.insert(step.finished.begin(), step.finished.end());
  }

  std::vector<PlannedRequest> plan() {
    check_counts();
    for (const NewRequest& request : step_.new_requests) add(request.id, plan_new(request));
    for (const CachedRequest& request : step_.cached_requests) add(request.id, plan_cached(request));
    std::vector<PlannedRequest> planned;
    planned.reserve(step_.num_scheduled_tokens.size());
    for (const auto& [id, tokens] : step_.num_scheduled_tokens) planned.push_back(take(id, tokens));
    for (const auto& [id, request] : named_) {
      if (request.scheduled == 0) refuse(RequestId(id), "is named in the step but no tokens are scheduled for it");
    }
    check_writers(planned);
    check_preempted();
    check_block_work();
    return planned;
  }

 private:
  // Finished ids go first: an id that is finished and named in one step is unknown.
  RequestPtr known(const RequestId& id) const {
    const auto found = requests_.find(id);
    return found == requests_.end() || finished_.contains(id) ? nullptr : found->second;
  }

  void check_counts() const {
    const auto& scheduled = step_.num_scheduled_tokens;
    if (static_cast<int64_t>(scheduled.size()) > limits_.max_num_seqs) {
      throw_error(ErrorCode::kInvalidArgument, "the step schedules {} requests, more than max_num_seqs {}",
                  scheduled.size(), limits_.max_num_seqs);
    }
    int64_t total = 0;  // cannot overflow: each term is at most the budget
    for (const auto& [id, tokens] : scheduled) {
      if (tokens < 1) refuse(id, "{} tokens are scheduled; at least 1 is needed", tokens);
      if (tokens > limits_.max_num_batched_tokens - total) {
        refuse(id, "{} tokens after {} others exceed max_num_batched_tokens {}", tokens, total,
               limits_.max_num_batched_tokens);
      }
      total += tokens;
    }
  }

  void check_tokens(const RequestId& id, std::span<const int32_t> tokens) const {
    if (std::ssize(tokens) > limits_.max_model_len) {
      refuse(id, "its {} tokens exceed max_model_len {}", tokens.size(), limits_.max_model_len);
    }
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] < 0 || tokens[i] >= limits_.vocab_size) {
        refuse(id, "token {} at position {} is outside the vocabulary of {}", tokens[i], i, limits_.vocab_size);
      }
    }
  }

  PlannedRequest plan_new(const NewRequest& request) const {
    const std::vector<int32_t>& prompt = request.prompt_token_ids;
    PlannedRequest planned{.known = known(request.id),
                           .fresh = &request,
                           .history = request.prefill_token_ids ? *request.prefill_token_ids : prompt,
                           .new_blocks = only_group(request.id, request.block_ids),
                           .replaces_blocks = true,
                           .computed = request.num_computed_tokens};
    if (prompt.empty()) refuse(request.id, "the prompt is empty");
    if (planned.history.size() < prompt.size() || !std::equal(prompt.begin(), prompt.end(), planned.history.begin())) {
      refuse(request.id, "its {} prefill tokens do not begin with its {} prompt tokens", planned.history.size(),
             prompt.size());
    }
    if (planned.known) {
      check_resume(*planned.known, planned.history);
    } else {
      check_tokens(request.id, planned.history);
    }
    return planned;
  }

  PlannedRequest plan_cached(const CachedRequest& request) const {
    PlannedRequest planned{.known = known(request.id),
                           .cached = &request,
                           .replaces_blocks = request.resumed,
                           .computed = request.num_computed_tokens};
    if (!planned.known) refuse(request.id, "is scheduled as known, but it is not known to the worker");
    const RequestState& state = *planned.known;
    if (request.new_block_ids) planned.new_blocks = only_group(request.id, *request.new_block_ids);
    if (request.all_token_ids) planned.history = *request.all_token_ids;
    if (request.resumed) {
      if (!request.new_block_ids) refuse(request.id, "is resumed without a block table");
      if (request.all_token_ids) check_resume(state, planned.history);
    } else {
      if (request.all_token_ids) check_history(state, planned.history);
      if (request.num_computed_tokens != state.computed) {
        refuse(request.id, "num_computed_tokens is {}, but {} are computed", request.num_computed_tokens,
               state.computed);
      }
    }
    const int64_t outputs = state.output_length() + state.pending;
    if (request.num_output_tokens != outputs) {
      refuse(request.id, "num_output_tokens is {}, but {} were sampled", request.num_output_tokens, outputs);
    }
    return planned;
  }

  void check_history(const RequestState& state, std::span<const int32_t> resent) const {
    if (!state.failure.empty()) return;  // its tokens are only filling
    const auto [ours, theirs] = std::mismatch(state.tokens.begin(), state.tokens.end(), resent.begin(), resent.end());
    if (ours != state.tokens.end() || theirs != resent.end()) {
      refuse(state.id, "the history resent ({} tokens) differs from ours ({} tokens) at position {}", resent.size(),
             state.tokens.size(), ours - state.tokens.begin());
    }
  }

  void check_resume(const RequestState& state, std::span<const int32_t> resent) const {
    if (state.pending > 0) refuse(state.id, "is resumed before {} of its tokens are drawn", state.pending);
    check_history(state, resent);
  }

  void add(const RequestId& id, PlannedRequest planned) {
    if (!named_.emplace(id, std::move(planned)).second) refuse(id, "is named twice in the step");
  }

  PlannedRequest take(const RequestId& id, int64_t tokens) {
    const auto found = named_.find(id);
    if (found == named_.end()) refuse(id, "has {} tokens scheduled but is neither new nor cached in the step", tokens);
    PlannedRequest& planned = found->second;
    if (planned.scheduled != 0) refuse(id, "is scheduled twice in the step");
    planned.scheduled = tokens;
    check_numbers(id, planned);
    check_blocks(id, planned);
    return planned;
  }

  void check_numbers(const RequestId& id, const PlannedRequest& planned) const {
    const int64_t known_tokens = planned.known ? planned.known->known() : std::ssize(planned.history);
    // The first test keeps the sum of the second from overflowing.
    if (planned.computed < 0 || planned.computed > known_tokens || planned.end() > known_tokens) {
      refuse(id, "computed {} + scheduled {} is more than the {} tokens known", planned.computed, planned.scheduled,
             known_tokens);
    }
    if (planned.end() > limits_.max_model_len) {
      refuse(id, "computed {} + scheduled {} exceeds max_model_len {}", planned.computed, planned.scheduled,
             limits_.max_model_len);
    }
  }

  void check_blocks(const RequestId& id, const PlannedRequest& planned) {
    const int64_t needed = (planned.end() + limits_.block_size - 1) / limits_.block_size;
    if (planned.num_blocks() < needed) {
      refuse(id, "{} tokens need {} blocks of {}, its table has {}", planned.end(), needed, limits_.block_size,
             planned.num_blocks());
    }
    if (planned.new_blocks.empty()) return;  // the rest of the table was checked when it came
    for (const int32_t block : planned.new_blocks) {
      if (block <= 0 || block >= limits_.num_blocks) {
        refuse(id, "block {} is not among the usable blocks 1 to {}", block, limits_.num_blocks - 1);
      }
    }
    marks_.clear();
    for (int64_t i = 0; i < planned.num_blocks(); ++i) {
      if (!marks_.insert(planned.block(i))) refuse(id, "block {} occurs twice in its table", planned.block(i));
    }
  }

  // Requests may share blocks to read (a common prefix), never to write.
  void check_writers(const std::vector<PlannedRequest>& planned) {
    marks_.clear();
    for (const PlannedRequest& request : planned) {
      const int64_t last = (request.end() - 1) / limits_.block_size;
      for (int64_t i = request.computed / limits_.block_size; i <= last; ++i) {
        if (marks_.insert(request.block(i))) continue;
        refuse(request.fresh ? request.fresh->id : request.cached->id,
               "block {} is written by another request in the same step", request.block(i));
      }
    }
  }

  void check_preempted() const {
    for (const RequestId& id : step_.preempted) {
      if (finished_.contains(id)) continue;
      if (!known(id)) refuse(id, "is preempted, but it is not known to the worker");
      if (named_.contains(id)) refuse(id, "is preempted and scheduled in one step");
    }
  }

  void check_block_work() const {
    const auto check = [this](int32_t block, std::string_view what) {
      if (block > 0 && block < limits_.num_blocks) return;
      throw_error(ErrorCode::kInvalidArgument, "block {} {} is not among the usable blocks 1 to {}", block, what,
                  limits_.num_blocks - 1);
    };
    for (const int32_t block : step_.blocks_to_zero) check(block, "to be zeroed");
    for (const BlockCopy& copy : step_.block_copies) {
      check(copy.from, "to be copied from");
      check(copy.to, "to be copied to");
    }
  }

  const Step& step_;
  const InputBatchLimits& limits_;
  const RequestMap& requests_;
  BlockMarks& marks_;
  std::unordered_set<RequestId> finished_;
  std::unordered_map<std::string_view, PlannedRequest> named_;  // keys point into the step
};

}  // namespace

std::vector<PlannedRequest> plan_step(const Step& step, const InputBatchLimits& limits, const RequestMap& requests,
                                      BlockMarks& marks) {
  return Planner(step, limits, requests, marks).plan();
}

}  // namespace spyre::runner
