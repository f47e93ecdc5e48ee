// The scheduler alone, in virtual time, against an adversary: small caches, tight budgets, prompts that share
// beginnings, aborts, failing steps and failing requests, at random. Every step is carried by the worker's own
// InputBatch (which refuses whatever contradicts the contract) over a shadow of the KV cache that knows which prefix
// each slot belongs to.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "base/error.h"
#include "engine/scheduler.h"
#include "runner/input_batch.h"

namespace spyre::engine {
namespace {

// Small, fast, good enough: a multiply-xorshift counter.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull + 1) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool chance(int percent) { return below(100) < percent; }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

constexpr int32_t kVocab = 64;

uint64_t extend(uint64_t prefix, int32_t token) {
  return (prefix ^ static_cast<uint64_t>(token + 1)) * 0x9e3779b97f4a7c15ull + (prefix >> 29);
}

struct Costs {  // of the pretended machine
  double step, token, row, context, pair, noise;
};

struct Setup {
  int64_t block_size, max_model_len, num_blocks;
  SchedulerConfig scheduler;
  Costs costs;
  int abort_percent, fail_percent, error_percent;
  int64_t requests;
};

Setup random_setup(Random& random) {
  Setup s;
  s.block_size = random.between(1, 5);
  s.max_model_len = random.between(4, 40);
  const int64_t longest = (s.max_model_len + s.block_size - 1) / s.block_size;
  s.num_blocks = 1 + longest + random.below(2 * longest + 1);
  s.scheduler.max_num_batched_tokens = random.between(1, 24);
  s.scheduler.max_num_seqs = random.between(1, 6);
  s.scheduler.max_token_gap = random.chance(70) ? 0.002 * static_cast<double>(random.between(1, 20)) : 0;
  s.scheduler.min_chunk = random.between(1, 8);
  s.costs = {.step = 1e-3 * random.uniform(),
             .token = 1e-3 * random.uniform(),
             .row = 5e-4 * random.uniform(),
             .context = 2e-5 * random.uniform(),
             .pair = 2e-5 * random.uniform(),
             .noise = 0.05 * random.uniform()};
  s.abort_percent = random.chance(50) ? 0 : 5;
  s.fail_percent = random.chance(80) ? 0 : 10;
  s.error_percent = random.chance(80) ? 0 : 4;
  s.requests = random.between(1, 8);
  return s;
}

class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : random_(seed),
        setup_(random_setup(random_)),
        cache_(setup_.num_blocks, setup_.block_size, random_.chance(85)),
        scheduler_(setup_.scheduler, cache_, time_),
        batch_({.block_size = setup_.block_size,
                .num_blocks = setup_.num_blocks,
                .max_model_len = setup_.max_model_len,
                .max_num_batched_tokens = setup_.scheduler.max_num_batched_tokens,
                .max_num_seqs = setup_.scheduler.max_num_seqs,
                .vocab_size = kVocab}),
        shadow_(setup_.num_blocks * setup_.block_size, 0) {}

  void run() {
    int64_t steps = 0;
    while (arrived_ < setup_.requests || !scheduler_.idle()) {
      while (arrived_ < setup_.requests && (scheduler_.idle() || random_.chance(30))) arrive();
      if (random_.chance(setup_.abort_percent)) abort_one();
      step();
      // Each request may be computed anew for every block that each other one takes, and fail or wait meanwhile.
      SPYRE_CHECK(++steps < 20000, "starvation: {} running, {} waiting", scheduler_.running().size(),
                  scheduler_.num_waiting());
    }
    SPYRE_CHECK(cache_.available() == cache_.usable() && batch_.size() == 0, "something is left");
    for (const auto& life : lives_)
      SPYRE_CHECK(life->ends == 1, "request '{}' ended {} times", life->sequence.id, life->ends);
  }

  const Scheduler::Counters& counters() const { return scheduler_.counters(); }

 private:
  struct Life {
    Sequence sequence;
    int64_t max_tokens = 0;
    int ends = 0;
  };

  void arrive() {
    auto life = std::make_unique<Life>();
    Sequence& s = life->sequence;
    s.id = "r" + std::to_string(arrived_);
    s.prompt_length = random_.between(1, setup_.max_model_len - 1);
    // One of three texts, left at some point.
    const auto story = static_cast<int32_t>(random_.below(3));
    const int64_t leaves = random_.chance(60) ? s.prompt_length : random_.between(0, s.prompt_length);
    for (int64_t i = 0; i < s.prompt_length; ++i) {
      s.tokens.push_back(
          static_cast<int32_t>(i < leaves ? (story * 7 + i * (story + 1)) % kVocab : random_.below(kVocab)));
    }
    s.cache_salt = random_.chance(10) ? "salt" : "";
    s.reads_prefix = !random_.chance(10);
    s.arrival = {static_cast<uint64_t>(arrived_), 0};
    s.sampling.temperature = 0;
    life->max_tokens = random_.between(1, 12);
    ++arrived_;
    scheduler_.add(s);
    lives_.push_back(std::move(life));
  }

  void abort_one() {
    std::vector<Life*> alive;
    for (const auto& life : lives_) {
      if (life->ends == 0) alive.push_back(life.get());
    }
    if (!alive.empty()) end(*alive[random_.below(std::ssize(alive))]);
  }

  void end(Life& life) {
    scheduler_.end(life.sequence);
    ++life.ends;
  }

  Life& life_of(const Sequence& sequence) {
    for (const auto& life : lives_) {
      if (&life->sequence == &sequence) return *life;
    }
    SPYRE_CHECK(false, "unknown sequence");
  }

  void step() {
    const Sequence* earliest = nullptr;
    for (const auto& life : lives_) {
      if (life->ends == 0 && (!earliest || life->sequence.arrival < earliest->arrival)) earliest = &life->sequence;
    }
    const int64_t running_before = std::ssize(scheduler_.running());
    const ScheduledStep step = scheduler_.schedule(now_);
    check_books();
    check_bounds(step);
    if (earliest) check_progress(step, *earliest, running_before);
    if (step.empty()) return;
    if (random_.chance(setup_.fail_percent)) return fail(step);

    batch_.apply(step.step);
    SPYRE_CHECK(batch_.scheduled().size() == step.parts.size());
    for (const ScheduledStep::Part& part : step.parts) compute(part);
    batch_.advance();
    const double seconds = duration(step.shape);
    now_ += seconds;
    if (!step.parts.empty()) time_.observe(step.shape, seconds);
    const auto scheduled = batch_.scheduled();
    for (size_t i = 0; i < step.parts.size(); ++i) finish_part(step.parts[i], scheduled[i]);
  }

  // The step came to nothing, before or after the worker had applied it; what it would have written is anything.
  void fail(const ScheduledStep& step) {
    if (random_.chance(50)) {
      batch_.apply(step.step);
      for (const ScheduledStep::Part& part : step.parts) {
        for (int64_t i = 0; i < part.tokens; ++i) slot(*part.sequence, part.sequence->computed + i) = 1;
      }
    }
    scheduler_.fail(step.step);
    for (const ScheduledStep::Part& part : step.parts) end(life_of(*part.sequence));
  }

  uint64_t& slot(const Sequence& s, int64_t position) {
    const int32_t block = s.table.blocks()[position / setup_.block_size];
    return shadow_[block * setup_.block_size + position % setup_.block_size];
  }

  // What the part reads must be its own prefix, whoever wrote it; then it writes.
  void compute(const ScheduledStep::Part& part) {
    const Sequence& s = *part.sequence;
    uint64_t prefix = s.cache_salt.empty() ? 3 : 5;
    for (int64_t i = 0; i < s.computed + part.tokens; ++i) {
      prefix = extend(prefix, s.tokens[i]);
      if (i >= s.computed) slot(s, i) = prefix;
      SPYRE_CHECK(slot(s, i) == prefix, "request '{}' reads a stranger's content at position {}", s.id, i);
    }
    SPYRE_CHECK(s.reads_prefix || s.computed == 0 || batch_.find(s.id)->computed == s.computed, "'{}'", s.id);
  }

  void finish_part(const ScheduledStep::Part& part, const runner::ScheduledRequest& scheduled) {
    Sequence& s = *part.sequence;
    Life& life = life_of(s);
    if (random_.chance(setup_.error_percent)) return end(life);  // non-finite: what it wrote must not be found
    scheduler_.advance(part);
    SPYRE_CHECK(scheduled.samples == (s.left() == 0), "request '{}'", s.id);
    if (!scheduled.samples) return;
    const auto token = static_cast<int32_t>(extend(static_cast<uint64_t>(s.length()), s.tokens.back()) % kVocab);
    batch_.append_token(*scheduled.state, token);
    s.tokens.push_back(token);
    if (s.outputs() >= life.max_tokens || s.length() >= setup_.max_model_len) end(life);
  }

  void check_books() {
    held_.clear();
    for (const auto& life : lives_) {
      const auto& blocks = life->sequence.table.blocks();
      held_.insert(held_.end(), blocks.begin(), blocks.end());
      SPYRE_CHECK(life->ends == 0 || blocks.empty(), "request '{}' has blocks after its end", life->sequence.id);
    }
    cache_.check(held_);
  }

  void check_bounds(const ScheduledStep& step) const {
    const SchedulerConfig& c = setup_.scheduler;
    SPYRE_CHECK(step.step.total_tokens() <= c.max_num_batched_tokens, "{} tokens", step.step.total_tokens());
    SPYRE_CHECK(std::ssize(scheduler_.running()) <= scheduler_.max_running());
    if (c.max_token_gap <= 0 || step.shape.decode_rows == 0 || step.shape.prefill_tokens <= c.min_chunk) return;
    SPYRE_CHECK(step.predicted <= c.max_token_gap * (1 + 1e-9), "{} s for {} prefill tokens beside {} decodes",
                step.predicted, step.shape.prefill_tokens, step.shape.decode_rows);
  }

  // The earliest arrival moves in every step, unless it waits for seats or blocks of those that run; they all decode.
  void check_progress(const ScheduledStep& step, const Sequence& earliest, int64_t running_before) const {
    SPYRE_CHECK(!step.parts.empty(), "nothing is scheduled although '{}' is alive", earliest.id);
    if (earliest.state == Sequence::State::kWaiting) {
      SPYRE_CHECK(running_before > 0, "'{}' waits for nobody", earliest.id);
    } else {
      SPYRE_CHECK(
          std::any_of(step.parts.begin(), step.parts.end(), [&](const auto& p) { return p.sequence == &earliest; }),
          "'{}' came first and is passed over", earliest.id);
    }
    int64_t decodes = 0;
    for (const Sequence* s : scheduler_.running()) decodes += s->decodes();
    SPYRE_CHECK(decodes == step.shape.decode_rows, "{} of {} decodes are in the step", step.shape.decode_rows, decodes);
  }

  double duration(const StepShape& s) {
    const Costs& c = setup_.costs;
    const double exact = c.step + c.token * static_cast<double>(s.prefill_tokens) +
                         c.row * static_cast<double>(s.decode_rows) + c.context * s.decode_context +
                         c.pair * s.prefill_pairs;
    return exact * (1 + c.noise * (2 * random_.uniform() - 1));
  }

  Random random_;
  Setup setup_;
  KvCacheManager cache_;
  StepTimeModel time_;
  Scheduler scheduler_;
  runner::InputBatch batch_;
  std::vector<uint64_t> shadow_;  // per slot: the prefix whose K and V it holds
  std::vector<std::unique_ptr<Life>> lives_;
  std::vector<int32_t> held_;
  int64_t arrived_ = 0;
  double now_ = 0;
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(NDEBUG)
constexpr uint64_t kScenarios = 2000;
#else
constexpr uint64_t kScenarios = 25000;
#endif

class SchedulerSimulation : public ::testing::TestWithParam<uint64_t> {};

// 4 x 25,000 scenarios.
TEST_P(SchedulerSimulation, KeepsItsPromises) {
  int64_t preemptions = 0, hits = 0;
  for (uint64_t i = 0; i < kScenarios; ++i) {
    const uint64_t seed = GetParam() * kScenarios + i;
    try {
      Simulation simulation(seed);
      simulation.run();
      preemptions += simulation.counters().preemptions;
      hits += simulation.counters().prefix_hits;
    } catch (const Error& error) {
      FAIL() << "seed " << seed << ": " << error.what();
    }
  }
  // The adversary found what it looks for.
  EXPECT_GT(preemptions, static_cast<int64_t>(kScenarios / 10));
  EXPECT_GT(hits, static_cast<int64_t>(kScenarios));
}

INSTANTIATE_TEST_SUITE_P(Seeds, SchedulerSimulation, ::testing::Values(0u, 1u, 2u, 3u));

}  // namespace
}  // namespace spyre::engine
