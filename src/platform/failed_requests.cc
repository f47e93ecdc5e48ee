#include "platform/failed_requests.h"

#include <algorithm>

#include "base/error.h"

namespace spyre::platform {
namespace {

using runner::CachedRequest;
using runner::NewRequest;
using runner::RequestId;
using runner::Step;
using runner::Worker;

// A table in more than one KV group is refused by the worker; until then it has no blocks.
std::span<const int32_t> blocks_of(const runner::BlockIds& ids) {
  return ids.size() == 1 ? std::span<const int32_t>(ids[0]) : std::span<const int32_t>();
}
std::span<const int32_t> blocks_of(const CachedRequest& request) {
  return request.new_block_ids ? blocks_of(*request.new_block_ids) : std::span<const int32_t>();
}

// Where its |new_block_ids| begin to be written: those of a resume are a whole table, others come for new tokens.
int64_t computed_in(const CachedRequest& request) {
  return request.resumed ? request.num_computed_tokens : 0;
}

bool contains(const std::vector<RequestId>& ids, const RequestId& id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// Finished ids go first: what is finished in this step is no longer known in it.
bool is_known(const RequestId& id, const Step& step, const Worker& worker) {
  return worker.find(id) != nullptr && !contains(step.finished, id);
}

}  // namespace

const std::string* FailedRequests::find(const RequestId& id) const {
  const auto found = reasons_.find(id);
  return found == reasons_.end() ? nullptr : &found->second;
}

void FailedRequests::fail(const RequestId& id, const std::string& reason, const Worker& worker) {
  reasons_.try_emplace(id, reason);
  if (const runner::RequestState* state = worker.find(id)) leave_unwritten(state->blocks, state->computed);
}

void FailedRequests::fail_all(const Step& step, const std::string& reason, const Worker& worker) {
  for (const NewRequest& request : step.new_requests) leave_unwritten(request);
  for (const CachedRequest& request : step.cached_requests) leave_unwritten(request);
  for (const auto& [id, tokens] : step.num_scheduled_tokens) fail(id, reason, worker);
}

void FailedRequests::finish(std::span<const RequestId> ids) {
  if (reasons_.empty()) return;
  for (const RequestId& id : ids) reasons_.erase(id);
}

int64_t FailedRequests::unknown_to(const Worker& worker) const {
  return std::count_if(reasons_.begin(), reasons_.end(),
                       [&](const auto& f) { return worker.find(f.first) == nullptr; });
}

const Step& FailedRequests::runnable(const Step& step, const Worker& worker, Step& filtered) {
  if (can_run_all(step, worker)) return step;
  filtered = step;
  drop(filtered, worker);
  drop_readers_of_unwritten(filtered);
  std::erase_if(filtered.num_scheduled_tokens, [this](const auto& s) { return reasons_.contains(s.first); });
  return filtered;
}

const runner::GrammarMask& FailedRequests::runnable(const runner::GrammarMask& mask,
                                                    runner::GrammarMask& filtered) const {
  if (reasons_.empty() || mask.request_ids.size() != mask.rows.size()) return mask;
  for (size_t i = 0; i < mask.rows.size(); ++i) {
    if (reasons_.contains(mask.request_ids[i])) continue;
    filtered.request_ids.push_back(mask.request_ids[i]);
    filtered.rows.push_back(mask.rows[i]);
  }
  return filtered;
}

// The usual case, and all that a step without a fault pays.
bool FailedRequests::can_run_all(const Step& step, const Worker& worker) const {
  if (!reasons_.empty() || !unwritten_.empty()) return false;
  const auto known = [&](const RequestId& id) { return is_known(id, step, worker); };
  return std::all_of(step.cached_requests.begin(), step.cached_requests.end(),
                     [&](const CachedRequest& request) { return known(request.id); }) &&
         std::all_of(step.preempted.begin(), step.preempted.end(), known);
}

void FailedRequests::drop(Step& step, const Worker& worker) {
  std::erase_if(step.new_requests, [this](const NewRequest& request) {
    if (!reasons_.contains(request.id)) return false;
    leave_unwritten(request);
    return true;
  });
  std::erase_if(step.cached_requests, [&](const CachedRequest& request) {
    if (!reasons_.contains(request.id)) {
      if (is_known(request.id, step, worker)) return false;
      reasons_.emplace(request.id, fmt::format("request '{}': is scheduled as known, but it is not known to the worker",
                                               request.id));
    }
    leave_unwritten(request);
    return true;
  });
  std::erase_if(step.preempted,
                [&](const RequestId& id) { return reasons_.contains(id) || !is_known(id, step, worker); });
}

// A request that fails here leaves blocks unwritten itself: again until nobody else reads any.
void FailedRequests::drop_readers_of_unwritten(Step& step) {
  if (unwritten_.empty()) return;
  for (const runner::BlockCopy& copy : step.block_copies) {  // made before anything of the step is written
    if (unwritten_.contains(copy.from)) {
      unwritten_.insert(copy.to);
    } else {
      unwritten_.erase(copy.to);
    }
  }
  std::unordered_set<int32_t> written;
  for (size_t failed_before = reasons_.size() + 1; failed_before != reasons_.size();) {
    failed_before = reasons_.size();
    written.clear();
    for (const NewRequest& request : step.new_requests) {
      collect_written(blocks_of(request.block_ids), request.num_computed_tokens, written);
    }
    for (const CachedRequest& request : step.cached_requests) {
      collect_written(blocks_of(request), computed_in(request), written);
    }
    std::erase_if(step.new_requests, [&](const NewRequest& request) {
      return reads_unwritten(request.id, blocks_of(request.block_ids), request.num_computed_tokens, written);
    });
    std::erase_if(step.cached_requests, [&](const CachedRequest& request) {
      return reads_unwritten(request.id, blocks_of(request), computed_in(request), written);
    });
  }
  for (const int32_t block : written) unwritten_.erase(block);
}

void FailedRequests::leave_unwritten(const NewRequest& request) {
  leave_unwritten(blocks_of(request.block_ids), request.num_computed_tokens);
}

void FailedRequests::leave_unwritten(const CachedRequest& request) {
  leave_unwritten(blocks_of(request), computed_in(request));
}

void FailedRequests::leave_unwritten(Blocks blocks, int64_t computed) {
  const int64_t full = std::clamp<int64_t>(computed / block_size_, 0, std::ssize(blocks));
  unwritten_.insert(blocks.begin() + full, blocks.end());
}

void FailedRequests::collect_written(Blocks blocks, int64_t computed, std::unordered_set<int32_t>& written) const {
  const int64_t begun = std::clamp<int64_t>((computed + block_size_ - 1) / block_size_, 0, std::ssize(blocks));
  written.insert(blocks.begin() + begun, blocks.end());
}

bool FailedRequests::reads_unwritten(const RequestId& id, Blocks blocks, int64_t computed,
                                     const std::unordered_set<int32_t>& written) {
  const int64_t begun = std::clamp<int64_t>((computed + block_size_ - 1) / block_size_, 0, std::ssize(blocks));
  for (const int32_t block : blocks.first(begun)) {
    if (!unwritten_.contains(block) || written.contains(block)) continue;
    reasons_.try_emplace(id, fmt::format("request '{}': its prefix lies in block {}, which a failed request has left "
                                         "unwritten",
                                         id, block));
    leave_unwritten(blocks, computed);
    return true;
  }
  return false;
}

}  // namespace spyre::platform
