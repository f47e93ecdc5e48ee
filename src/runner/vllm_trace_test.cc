// Recorded scheduler traces through the production worker, its block tables and the KV pages of the echo model.
//
// The test keeps its own books, from the trace alone: who is known, with which tokens. The sampler seam compares each
// sampling request's row with the mean that its whole history must give, then follows the engine rule of the traces:
// next = (last + 1) % vocabulary; under a grammar row the first allowed id from there upwards, wrapping round.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>

#include "base/error.h"
#include "runner/testing/echo_runner.h"
#include "runner/testing/vllm_trace.h"
#include "runner/worker.h"

namespace spyre::runner {
namespace {

using testing::EchoModel;
using testing::EchoRunner;
using testing::Trace;
using testing::TraceStep;

// One wrong value among 256 moves the mean by about 0.004 in most of its 64 elements; fp32 rounding by 1e-6.
constexpr double kTolerance = 5e-5;

const EchoModel& model() {
  static const EchoModel echo(320, 256);
  return echo;
}

struct Books {
  struct Life {
    std::vector<int32_t> tokens;
    size_t prompt_length = 0;
    std::vector<int32_t> sampled() const {
      return {tokens.begin() + static_cast<int64_t>(prompt_length), tokens.end()};
    }
  };
  std::map<RequestId, Life> known;
  std::vector<std::pair<RequestId, std::vector<int32_t>>> ended;
  int64_t rows_checked = 0, masked = 0;

  // Finished ids first, then new ones; an id that is known and comes as new is a resume.
  void take(const Step& step) {
    for (const RequestId& id : step.finished) {
      const auto life = known.find(id);
      if (life == known.end()) continue;
      ended.emplace_back(id, life->second.sampled());
      known.erase(life);
    }
    for (const NewRequest& request : step.new_requests) {
      known.try_emplace(request.id, Life{request.prompt_token_ids, request.prompt_token_ids.size()});
    }
  }
};

class RuleSampler final : public TokenSampler {
 public:
  explicit RuleSampler(Books& books) : books_(books) {}

  int32_t sample(const RequestState& request, std::span<const float> logits,
                 std::span<const uint32_t> allowed) override {
    Books::Life& life = books_.known.at(request.id);
    EXPECT_EQ(request.tokens, life.tokens) << request.id;
    const std::vector<double> expected = model().mean(life.tokens);
    double worst = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double difference = std::abs(logits[i] - expected[i]);
      if (!(difference <= worst)) worst = difference;  // a NaN stays
    }
    EXPECT_LE(worst, kTolerance) << request.id << " after " << life.tokens.size() << " tokens";
    ++books_.rows_checked;

    const auto vocab = static_cast<int32_t>(logits.size());
    int32_t token = (life.tokens.back() + 1) % vocab;
    if (!allowed.empty()) {
      ++books_.masked;
      for (int32_t tried = 0; tried < vocab && !(allowed[token / 32] >> (token % 32) & 1u); ++tried) {
        token = (token + 1) % vocab;
      }
    }
    life.tokens.push_back(token);
    return token;
  }

 private:
  Books& books_;
};

// Replays one trace; with |overlap| every step is executed before its elder is sampled.
class Replay {
 public:
  Replay(const Trace& trace, bool overlap)
      : trace_(trace),
        overlap_(overlap),
        worker_(std::make_unique<EchoRunner>(model(), EchoRunner::Output::kMean, trace.block_size),
                {.max_model_len = trace.max_model_len,
                 .max_num_batched_tokens = trace.max_num_batched_tokens,
                 .max_num_seqs = trace.max_num_seqs},
                std::make_unique<RuleSampler>(books_)) {
    worker_.load_model();
    worker_.initialize_kv_cache(trace.num_blocks);
    worker_.warm_up();
  }

  void run() {
    for (size_t k = 0; k < trace_.steps.size() && !::testing::Test::HasFailure(); ++k) {
      SCOPED_TRACE("step " + std::to_string(k));
      outstanding_.emplace_back(worker_.execute(trace_.steps[k].step), k);
      if (outstanding_.size() == (overlap_ ? 2 : 1)) sample_oldest();
    }
    while (!outstanding_.empty() && !::testing::Test::HasFailure()) sample_oldest();
  }

  // At the end no request is left, and users got what was sampled: under asynchronous scheduling, or after an abort,
  // the worker may hold one token more.
  void check_end() {
    EXPECT_EQ(worker_.num_requests(), 0);
    EXPECT_TRUE(books_.known.empty());
    auto lives = books_.ended;
    for (const testing::TraceEnd& end : trace_.ends) {
      const auto life = std::find_if(lives.begin(), lives.end(), [&](const auto& l) { return l.first == end.id; });
      std::vector<int32_t> ours;  // nothing when it was aborted before its first schedule
      if (life != lives.end()) {
        ours = life->second;
        lives.erase(life);
      }
      const size_t slack = trace_.async || end.finish_reason == "abort" ? 1 : 0;
      ASSERT_GE(ours.size(), end.tokens.size()) << end.id;
      EXPECT_LE(ours.size(), end.tokens.size() + slack) << end.id;
      ours.resize(end.tokens.size());
      EXPECT_EQ(ours, end.tokens) << end.id;
    }
    EXPECT_TRUE(lives.empty()) << lives.front().first << " is a life that vLLM does not know";
  }

  const Books& books() const { return books_; }

 private:
  void sample_oldest() {
    const auto [ticket, k] = outstanding_.front();
    outstanding_.pop_front();
    SCOPED_TRACE("sampling step " + std::to_string(k));
    const TraceStep& step = trace_.steps[k];
    books_.take(step.step);
    const StepOutput output = worker_.sample(ticket, step.mask ? &*step.mask : nullptr);
    EXPECT_EQ(step.has_output, !output.requests.empty());
    ASSERT_EQ(output.requests.size(), step.sampled_ids.size());
    for (size_t i = 0; i < output.requests.size(); ++i) {
      EXPECT_EQ(output.requests[i].id, step.sampled_ids[i]);
      EXPECT_EQ(output.requests[i].tokens, step.sampled_tokens[i]) << step.sampled_ids[i];
      EXPECT_EQ(output.requests[i].error, std::nullopt);
    }
  }

  const Trace& trace_;
  bool overlap_;
  Books books_;
  Worker worker_;
  std::deque<std::pair<Ticket, size_t>> outstanding_;
};

class VllmTrace : public ::testing::TestWithParam<const char*> {
 protected:
  void replay(bool overlap) {
    const Trace trace = testing::read_trace(std::string(SPYRE_TEST_DATA "/vllm_traces/") + GetParam() + ".jsonl");
    ASSERT_EQ(trace.v2, std::string(GetParam()).find("_v2") != std::string::npos);
    ASSERT_EQ(trace.async, std::string(GetParam()).find("_async") != std::string::npos);
    Replay replay(trace, overlap);
    try {
      replay.run();
    } catch (const Error& error) {
      FAIL() << error.what();
    }
    if (HasFailure()) return;
    replay.check_end();
    int64_t sampled = 0, grammar_rows = 0;
    for (const TraceStep& step : trace.steps) {
      for (const std::vector<int32_t>& tokens : step.sampled_tokens) sampled += std::ssize(tokens);
      if (step.mask) grammar_rows += std::ssize(step.mask->rows);
    }
    EXPECT_EQ(replay.books().rows_checked, sampled);
    EXPECT_EQ(replay.books().masked, grammar_rows);
  }
};

TEST_P(VllmTrace, StepByStep) {
  replay(false);
}
TEST_P(VllmTrace, WithTwoTicketsOutstanding) {
  replay(true);
}

INSTANTIATE_TEST_SUITE_P(Recorded, VllmTrace,
                         ::testing::Values("mixed_v1", "mixed_v2", "preempt_v1", "preempt_v1_async", "preempt_v2",
                                           "preempt_v2_async", "prefix_v1", "prefix_v2", "structured_v1",
                                           "structured_v1_async", "structured_v2", "structured_v2_async"),
                         [](const auto& info) { return std::string(info.param); });

// The check itself: one wrong id, one swapped pair or one missing token in 256 is far outside the tolerance.
TEST(EchoModel, AnySmallChangeOfTheHistoryShows) {
  std::vector<int32_t> history(256);
  for (size_t i = 0; i < history.size(); ++i) history[i] = static_cast<int32_t>(i * 37 % 320);
  const std::vector<double> right = model().mean(history);
  const auto distance = [&](const std::vector<int32_t>& other) {
    const std::vector<double> mean = model().mean(other);
    double worst = 0;
    for (size_t i = 0; i < mean.size(); ++i) worst = std::max(worst, std::abs(mean[i] - right[i]));
    return worst;
  };
  for (const size_t at : {0, 1, 100, 254, 255}) {
    std::vector<int32_t> other = history;
    other[at] = (other[at] + 1) % 320;
    EXPECT_GT(distance(other), 40 * kTolerance) << at;
    other = history;
    std::swap(other[at], other[(at + 1) % 256]);
    EXPECT_GT(distance(other), 40 * kTolerance) << at;
  }
}

}  // namespace
}  // namespace spyre::runner
