// The scheduler: which tokens of which sequences the next step computes. Pure logic over a KvCacheManager and a
// StepTimeModel: no worker, no clock (the host tells the time), no text.
//
// Continuous batching in order of arrival. A step takes one token of every running sequence that decodes, and chunks of
// prompts as far as three bounds allow: the token budget, the blocks, and, when anybody is decoding, the predicted time
// of the step: whoever reads a stream waits no longer than |max_token_gap| for the next token because of somebody
// else's prompt. (A minimum chunk keeps prompts moving where even that is too much.) A sequence is admitted when its
// whole history fits beside what the running prompts still need. When blocks run out the latest arrival gives its own
// back and waits, first in the queue; it resumes by computing its history again, or finding it in the prefix cache.
//
// Nobody starves: the earliest arrival of all is never preempted while another sequence runs, and nobody is admitted
// before it.
//
// Cycle: schedule(), run the step, then for each of its sequences advance() (it was computed) or fail(), append the
// tokens that were drawn, end() those that are done. Sequences are the host's; the scheduler points at them from add()
// to end(). Single-threaded.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/kv_cache_manager.h"
#include "engine/step_time.h"
#include "runner/step.h"

namespace spyre::engine {

struct SchedulerConfig {
  int64_t max_num_batched_tokens = 512;
  int64_t max_num_seqs = 16;
  double max_token_gap = 0.2;  // seconds; <= 0: no bound
  int64_t min_chunk = 32;      // tokens of a prompt that a step may always take, time bound or not
};

// One choice of a request.
struct Sequence {
  // The host's, set before add().
  runner::RequestId id;         // unique among those the worker knows
  std::vector<int32_t> tokens;  // prompt and what was drawn; the host appends
  int64_t prompt_length = 0;
  runner::SamplingParams sampling;
  std::string cache_salt;
  bool reads_prefix = true;              // false: every token must be computed (its log-probability is wanted)
  std::pair<uint64_t, int32_t> arrival;  // unique, ascending: request, choice

  // The scheduler's.
  enum class State : uint8_t { kNew, kWaiting, kRunning, kEnded };
  State state = State::kNew;
  int64_t computed = 0;
  BlockTable table;
  int64_t sent_blocks = 0;     // of the table, that the worker has
  bool known = false;          // to the worker
  bool was_preempted = false;  // its next step is a resume
  double first_scheduled = -1;
  int64_t cached_tokens = 0;  // found in the prefix cache when it was first scheduled
  int64_t preemptions = 0;

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  int64_t outputs() const { return length() - prompt_length; }
  int64_t left() const { return length() - computed; }
  bool decodes() const { return left() == 1 && outputs() > 0; }
};

// A step, and whom it is for.
struct ScheduledStep {
  struct Part {
    Sequence* sequence = nullptr;
    int64_t tokens = 0;
  };
  runner::Step step;
  std::vector<Part> parts;  // parallel to step.num_scheduled_tokens
  StepShape shape;
  double predicted = 0;  // seconds

  bool empty() const { return parts.empty() && step.finished.empty(); }
};

class Scheduler {
 public:
  // REQUIRES: positive limits; the cache holds the longest sequence that will be added.
  Scheduler(const SchedulerConfig& config, KvCacheManager& cache, const StepTimeModel& time);

  // Into the queue, by arrival.
  void add(Sequence& sequence);
  // In any state, except between schedule() and the end of the step's cycle for a sequence of that step which was
  // neither advanced nor failed: its blocks are free at once, and the worker hears of it with the next step.
  void end(Sequence& sequence);

  // The next step. Empty when there is nothing to do; without parts when the worker has only endings to hear of.
  ScheduledStep schedule(double now);
  // The part was computed: its full blocks can be found from now on.
  void advance(const ScheduledStep::Part& part);
  // The whole step came to nothing, and maybe never reached the worker: what it should have heard is said again. The
  // sequences are the host's to end().
  void fail(const runner::Step& step);

  bool idle() const { return running_.empty() && waiting_.empty() && finished_.empty(); }
  const std::vector<Sequence*>& running() const { return running_; }
  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t max_running() const { return max_running_; }

  struct Counters {
    int64_t preemptions = 0;
    int64_t prefix_queries = 0, prefix_hits = 0;  // tokens
  };
  const Counters& counters() const { return counters_; }

 private:
  void schedule_running(ScheduledStep& out);
  void admit(ScheduledStep& out, double now);
  bool fits(const Sequence& sequence, const KvCacheManager::Prefix& prefix) const;
  bool joins_late(const Sequence& sequence) const;
  bool make_room(Sequence& sequence, int64_t tokens, ScheduledStep& out);
  void preempt_last(ScheduledStep& out);
  int64_t chunk(const Sequence& sequence) const;
  void put(Sequence& sequence, int64_t tokens, ScheduledStep& out);

  SchedulerConfig config_;
  int64_t max_running_;
  KvCacheManager& cache_;
  const StepTimeModel& time_;
  std::vector<Sequence*> running_;  // by arrival
  std::map<std::pair<uint64_t, int32_t>, Sequence*> waiting_;
  std::vector<runner::RequestId> finished_;  // for the worker to forget
  Counters counters_;

  // Of the step being made.
  StepShape reserved_;     // what is in it, and the decodes that are still to come
  int64_t room_ = 0;       // tokens of the budget that prompts may take
  bool prefills_ = false;  // a prompt has a chunk in it
};

}  // namespace spyre::engine
