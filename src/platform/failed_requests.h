// The requests that a hosted worker runs no more although their host still schedules them, and the KV blocks that
// nobody has written on that account. Internal to the HostedWorker; single-threaded.
//
// A host that schedules ahead names a failed request once or twice more, and may have promised its blocks to others: to
// one that begins with the same prompt, in the same step even. What was never written there must not be read, so such a
// request fails too, with its reason. A block is good again when somebody who runs writes it from its start.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runner/step.h"
#include "runner/worker.h"

namespace spyre::platform {

class FailedRequests {
 public:
  FailedRequests() = default;
  explicit FailedRequests(int64_t block_size) : block_size_(block_size) {}

  // Why |id| failed; null when it has not.
  const std::string* find(const runner::RequestId& id) const;
  // What is known of |id| says which of its blocks are left unwritten. The first reason stays.
  void fail(const runner::RequestId& id, const std::string& reason, const runner::Worker& worker);
  // Every request of |step|, which did not run.
  void fail_all(const runner::Step& step, const std::string& reason, const runner::Worker& worker);
  // The host ended them: an id may be used again.
  void finish(std::span<const runner::RequestId> ids);

  // |step| without the requests that have failed, and without those that cannot run and fail here: cached ones that the
  // worker does not know, and readers of unwritten blocks. |step| itself when all of it can run, else |filtered|.
  const runner::Step& runnable(const runner::Step& step, const runner::Worker& worker, runner::Step& filtered);

  // The rows of |mask| whose requests have not failed; |mask| itself when that is all, or when it contradicts itself.
  const runner::GrammarMask& runnable(const runner::GrammarMask& mask, runner::GrammarMask& filtered) const;

  // Those that |worker| has never known, or has forgotten: it counts the others itself, until they are finished.
  int64_t unknown_to(const runner::Worker& worker) const;

 private:
  using Blocks = std::span<const int32_t>;

  bool can_run_all(const runner::Step& step, const runner::Worker& worker) const;
  void drop(runner::Step& step, const runner::Worker& worker);
  void drop_readers_of_unwritten(runner::Step& step);
  void leave_unwritten(const runner::NewRequest& request);
  void leave_unwritten(const runner::CachedRequest& request);
  void leave_unwritten(Blocks blocks, int64_t computed);
  void collect_written(Blocks blocks, int64_t computed, std::unordered_set<int32_t>& written) const;
  bool reads_unwritten(const runner::RequestId& id, Blocks blocks, int64_t computed,
                       const std::unordered_set<int32_t>& written);

  int64_t block_size_ = 1;
  std::unordered_map<runner::RequestId, std::string> reasons_;
  std::unordered_set<int32_t> unwritten_;
};

}  // namespace spyre::platform
