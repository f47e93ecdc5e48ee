#include "engine/scheduler.h"

#include <algorithm>

#include "base/error.h"

namespace spyre::engine {
namespace {

// Blocks that an admission leaves for running sequences to grow into: one for each, at most this share of the cache.
constexpr int64_t kGrowthShare = 16;

bool earlier(const Sequence* a, const Sequence* b) {
  return a->arrival < b->arrival;
}

}  // namespace

Scheduler::Scheduler(const SchedulerConfig& config, KvCacheManager& cache, const StepTimeModel& time)
    : config_(config),
      // So many that each can decode in every step.
      max_running_(std::min(config.max_num_seqs, config.max_num_batched_tokens)),
      cache_(cache),
      time_(time) {
  SPYRE_CHECK(max_running_ >= 1 && config.min_chunk >= 1, "{} {}", max_running_, config.min_chunk);
}

void Scheduler::add(Sequence& sequence) {
  SPYRE_CHECK(sequence.state == Sequence::State::kNew && sequence.length() > 0);
  sequence.state = Sequence::State::kWaiting;
  const bool added = waiting_.emplace(sequence.arrival, &sequence).second;
  SPYRE_CHECK(added, "arrival {}.{} twice", sequence.arrival.first, sequence.arrival.second);
}

void Scheduler::end(Sequence& sequence) {
  if (sequence.state == Sequence::State::kWaiting) waiting_.erase(sequence.arrival);
  if (sequence.state == Sequence::State::kRunning) std::erase(running_, &sequence);
  sequence.state = Sequence::State::kEnded;
  cache_.release(sequence.table);
  if (sequence.known) finished_.push_back(sequence.id);
  sequence.known = false;
}

ScheduledStep Scheduler::schedule(double now) {
  ScheduledStep out;
  out.step.finished = std::exchange(finished_, {});
  // Every decode has its token before prompts share out the rest.
  reserved_ = {};
  for (const Sequence* sequence : running_) {
    if (sequence->decodes()) reserved_.add_decode(sequence->length());
  }
  room_ = config_.max_num_batched_tokens - reserved_.decode_rows;
  prefills_ = false;
  schedule_running(out);
  admit(out, now);
  if (!out.parts.empty()) out.predicted = time_.predict(out.shape);
  return out;
}

// By arrival, so that whoever is preempted for want of blocks (the latest) has no tokens in the step yet.
void Scheduler::schedule_running(ScheduledStep& out) {
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    const int64_t tokens = sequence.decodes() ? 1 : chunk(sequence);
    if (tokens > 0 && make_room(sequence, sequence.computed + tokens, out)) put(sequence, tokens, out);
  }
}

bool Scheduler::make_room(Sequence& sequence, int64_t tokens, ScheduledStep& out) {
  while (!cache_.grow(sequence.table, tokens)) {
    const bool itself = running_.back() == &sequence;
    SPYRE_CHECK(running_.size() > 1, "request '{}': {} tokens do not fit {} blocks", sequence.id, tokens,
                cache_.usable());
    preempt_last(out);
    if (itself) return false;
  }
  return true;
}

void Scheduler::preempt_last(ScheduledStep& out) {
  Sequence& victim = *running_.back();
  running_.pop_back();
  if (victim.decodes()) {  // its place in the step goes to somebody's prompt
    --reserved_.decode_rows;
    reserved_.decode_context -= static_cast<double>(victim.length());
    ++room_;
  }
  cache_.release(victim.table);
  victim.computed = 0;
  victim.sent_blocks = 0;
  victim.state = Sequence::State::kWaiting;
  ++victim.preemptions;
  ++counters_.preemptions;
  if (victim.known) {
    victim.was_preempted = true;
    out.step.preempted.push_back(victim.id);
  }
  waiting_.emplace(victim.arrival, &victim);
}

// Tokens of its prompt (or of its history, after a preemption) that the sequence may have in this step.
int64_t Scheduler::chunk(const Sequence& sequence) const {
  const int64_t most = std::min(sequence.left(), room_);
  if (most <= 0 || reserved_.decode_rows == 0 || config_.max_token_gap <= 0) return std::max<int64_t>(most, 0);
  const int64_t within = time_.largest_chunk(reserved_, sequence.computed, most, config_.max_token_gap);
  return prefills_ ? within : std::max(within, std::min(most, config_.min_chunk));
}

bool Scheduler::fits(const Sequence& sequence, const KvCacheManager::Prefix& prefix) const {
  int64_t needed = cache_.blocks_for(sequence.length()) - prefix.blocks + prefix.idle;
  for (const Sequence* other : running_)
    needed += std::max<int64_t>(0, cache_.blocks_for(other->length()) - other->table.size());
  if (!running_.empty()) needed += std::min(std::ssize(running_), cache_.usable() / kGrowthShare);
  return needed <= cache_.available();
}

// A resume that found all of its history but the last token decodes at once; the chunks in the step were cut without
// it.
bool Scheduler::joins_late(const Sequence& sequence) const {
  if (!sequence.decodes() || !prefills_ || config_.max_token_gap <= 0) return false;
  StepShape with = reserved_;
  with.add_decode(sequence.length());
  return time_.predict(with) > config_.max_token_gap;
}

void Scheduler::admit(ScheduledStep& out, double now) {
  // Whoever was preempted in this very step needs what it has just given up.
  while (!waiting_.empty() && room_ > 0 && out.step.preempted.empty() && std::ssize(running_) < max_running_) {
    Sequence& sequence = *waiting_.begin()->second;
    KvCacheManager::Prefix prefix;
    if (sequence.reads_prefix) prefix = cache_.find_prefix(sequence.cache_salt, sequence.tokens);
    if (!fits(sequence, prefix)) return;
    sequence.computed = prefix.blocks * cache_.block_size();
    const int64_t tokens = joins_late(sequence) ? 0 : chunk(sequence);
    if (tokens == 0) {
      sequence.computed = 0;
      return;
    }
    cache_.adopt_prefix(sequence.table, sequence.cache_salt, sequence.tokens, prefix.blocks);
    const bool grown = cache_.grow(sequence.table, sequence.computed + tokens);
    SPYRE_CHECK(grown, "request '{}'", sequence.id);
    waiting_.erase(waiting_.begin());
    sequence.state = Sequence::State::kRunning;
    running_.insert(std::upper_bound(running_.begin(), running_.end(), &sequence, earlier), &sequence);
    if (sequence.first_scheduled < 0) {
      sequence.first_scheduled = now;
      sequence.cached_tokens = sequence.computed;
      if (sequence.reads_prefix) {
        counters_.prefix_queries += sequence.length();
        counters_.prefix_hits += sequence.computed;
      }
    }
    if (sequence.decodes()) {
      reserved_.add_decode(sequence.length());
      --room_;
    }
    put(sequence, tokens, out);
  }
}

// Writes the sequence into the step.
void Scheduler::put(Sequence& sequence, int64_t tokens, ScheduledStep& out) {
  if (sequence.decodes()) {
    out.shape.add_decode(sequence.length());
  } else {
    out.shape.add_prefill(sequence.computed, tokens);
    reserved_.add_prefill(sequence.computed, tokens);
    room_ -= tokens;
    prefills_ = true;
  }
  const std::vector<int32_t>& blocks = sequence.table.blocks();
  std::vector<int32_t> added(blocks.begin() + sequence.sent_blocks, blocks.end());
  sequence.sent_blocks = std::ssize(blocks);
  if (!sequence.known) {
    runner::NewRequest request{.id = sequence.id,
                               .block_ids = {std::move(added)},
                               .num_computed_tokens = sequence.computed,
                               .sampling = sequence.sampling};
    request.prompt_token_ids.assign(sequence.tokens.begin(), sequence.tokens.begin() + sequence.prompt_length);
    if (sequence.outputs() > 0) request.prefill_token_ids = sequence.tokens;
    out.step.new_requests.push_back(std::move(request));
    sequence.known = true;
  } else {
    runner::CachedRequest request{.id = sequence.id,
                                  .resumed = sequence.was_preempted,
                                  .num_computed_tokens = sequence.computed,
                                  .num_output_tokens = sequence.outputs()};
    if (sequence.was_preempted || !added.empty()) request.new_block_ids = runner::BlockIds{std::move(added)};
    out.step.cached_requests.push_back(std::move(request));
  }
  sequence.was_preempted = false;
  out.step.num_scheduled_tokens.emplace_back(sequence.id, tokens);
  out.parts.push_back({&sequence, tokens});
}

void Scheduler::advance(const ScheduledStep::Part& part) {
  Sequence& sequence = *part.sequence;
  sequence.computed += part.tokens;
  cache_.publish(sequence.table, sequence.cache_salt, std::span(sequence.tokens).first(sequence.computed));
}

void Scheduler::fail(const runner::Step& step) {
  finished_.insert(finished_.end(), step.finished.begin(), step.finished.end());
}

}  // namespace spyre::engine
