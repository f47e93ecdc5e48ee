#include "plugins/spyre/attention/work_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

namespace spyre::attention {
namespace {

std::vector<SequencePlan> plans(const std::vector<std::pair<int64_t, int64_t>>& sequences) {  // (context, query)
  std::vector<SequencePlan> out;
  int64_t row = 0;
  for (const auto& [context, query] : sequences) {
    SequencePlan s;
    s.first_row = row;
    s.query_len = query;
    s.context = context;
    s.kv_len = context + query;
    out.push_back(s);
    row += query;
  }
  return out;
}

// Pairs of a query row and a key that it sees.
int64_t pairs_of(const SequencePlan& s, const WorkItem& item, int64_t window) {
  int64_t sum = 0;
  for (int64_t row = item.first_row; row < item.first_row + item.rows; ++row) {
    const graph::KeyRange keys = graph::visible_keys(s.context + row, s.kv_len, true, window);
    sum += std::max<int64_t>(
        0, std::min<int64_t>(keys.last, item.end_range * 512) - std::max<int64_t>(keys.first, item.first_range * 512));
  }
  return sum;
}

// Every row of every head sees each of its ranges once, joins are whole, and nobody's stretch is missing.
void expect_whole(const StepTables& tables, const std::vector<SequencePlan>& sequences, const WorkOptions& options) {
  ASSERT_EQ(tables.starts.size(), static_cast<size_t>(options.threads) + 1);
  EXPECT_EQ(tables.starts.front(), 0);
  EXPECT_EQ(tables.starts.back(), std::ssize(tables.items));
  EXPECT_TRUE(std::is_sorted(tables.starts.begin(), tables.starts.end()));
  std::map<std::pair<int64_t, int64_t>, int64_t> pairs;  // of a (sequence, head)
  std::vector<int> parts(tables.joins.size(), 0);
  for (const WorkItem& item : tables.items) {
    pairs[{item.sequence, item.kv_head}] += pairs_of(sequences[item.sequence], item, options.window);
    EXPECT_LT(item.first_range, item.end_range);
    if (item.join < 0) continue;
    const WorkJoin& join = tables.joins[item.join];
    ++parts[item.join];
    EXPECT_TRUE(item.first_range == join.first_range ? item.end_range == join.folded_end
                                                     : item.first_range >= join.folded_end);
    EXPECT_LE(item.end_range, join.end_range);
  }
  for (size_t j = 0; j < parts.size(); ++j) {
    EXPECT_EQ(parts[j], tables.joins[j].parts);
    EXPECT_GE(parts[j], 2);
  }
  for (size_t s = 0; s < sequences.size(); ++s) {
    const WorkItem all{.first_row = 0, .rows = static_cast<int32_t>(sequences[s].query_len), .end_range = 1 << 20};
    for (int64_t head = 0; head < options.kv_heads; ++head) {
      EXPECT_EQ((pairs[{static_cast<int64_t>(s), head}]), pairs_of(sequences[s], all, options.window));
    }
  }
}

// The largest share of the pairs, relative to an equal one.
double imbalance(const StepTables& tables, const std::vector<SequencePlan>& sequences, const WorkOptions& options) {
  std::vector<int64_t> load(static_cast<size_t>(options.threads), 0);
  for (int t = 0; t < options.threads; ++t) {
    for (int32_t i = tables.starts[t]; i < tables.starts[t + 1]; ++i) {
      load[t] += pairs_of(sequences[tables.items[i].sequence], tables.items[i], options.window);
    }
  }
  const int64_t total = std::accumulate(load.begin(), load.end(), int64_t{0});
  return static_cast<double>(*std::max_element(load.begin(), load.end()) * options.threads) /
         static_cast<double>(total);
}

TEST(WorkPlan, AnyStepIsDealtOutWhole) {
  std::mt19937 random(1);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int round = 0; round < 200; ++round) {
    const WorkOptions options{.threads = static_cast<int>(1 + below(9)),
                              .kv_heads = 1 + below(4),
                              .group = 1 + below(9),
                              .head_dim = round % 5 == 0 ? 0 : 64,
                              .window = round % 3 == 0 ? 1 + below(1500) : 0,
                              .max_model_len = 8192,
                              .max_num_batched_tokens = 1024,
                              .max_num_seqs = 16};
    WorkPlan plan(options);
    for (int step = 0; step < 5; ++step) {
      std::vector<std::pair<int64_t, int64_t>> sequences;
      for (int64_t n = 1 + below(16); n > 0; --n) sequences.emplace_back(below(7000), random() % 2 ? 1 : 1 + below(64));
      const std::vector<SequencePlan> s = plans(sequences);
      StepTables tables;
      plan.build(s, true);
      plan.describe(tables);
      ASSERT_NO_FATAL_FAILURE(expect_whole(tables, s, options));
      EXPECT_LT(std::ssize(tables.joins), options.threads);
      EXPECT_TRUE(options.head_dim > 0 || tables.joins.empty());
    }
  }
}

TEST(WorkPlan, SharesAreEqual) {
  struct Case {
    int threads;
    int64_t kv_heads, group;
    std::vector<std::pair<int64_t, int64_t>> sequences;
    double most;
  };
  for (const Case& c : std::vector<Case>{{2, 3, 3, {{2047, 1}}, 1.01},   // 3 heads of 4 ranges
                                         {2, 1, 4, {{8191, 1}}, 1.01},   // one head of 16 ranges
                                         {5, 3, 3, {{8191, 1}}, 1.05},   //
                                         {2, 3, 3, {{0, 512}}, 1.05},    // a prompt
                                         {2, 3, 3, {{1000, 20}}, 1.05},  // a short chunk: positions are divided
                                         {3, 2, 4, {{3000, 1}, {50, 1}, {700, 1}}, 1.15}}) {
    const WorkOptions options{.threads = c.threads,
                              .kv_heads = c.kv_heads,
                              .group = c.group,
                              .head_dim = 64,
                              .max_model_len = 8192,
                              .max_num_batched_tokens = 1024,
                              .max_num_seqs = 16};
    WorkPlan plan(options);
    const std::vector<SequencePlan> s = plans(c.sequences);
    StepTables tables;
    plan.build(s, true);
    plan.describe(tables);
    ASSERT_NO_FATAL_FAILURE(expect_whole(tables, s, options));
    EXPECT_LE(imbalance(tables, s, options), c.most)
        << c.threads << " threads, " << c.sequences[0].first << "+" << c.sequences[0].second;
  }
}

// Where threads have equal shares of whole units, none is divided.
TEST(WorkPlan, NothingIsDividedWithoutNeed) {
  for (int64_t seqs : {2, 4, 16}) {
    const WorkOptions options{.threads = 2,
                              .kv_heads = 3,
                              .group = 3,
                              .head_dim = 64,
                              .max_model_len = 4096,
                              .max_num_batched_tokens = 64,
                              .max_num_seqs = 16};
    WorkPlan plan(options);
    const std::vector<SequencePlan> s =
        plans(std::vector<std::pair<int64_t, int64_t>>(static_cast<size_t>(seqs), {2000, 1}));
    StepTables tables;
    plan.build(s, true);
    plan.describe(tables);
    EXPECT_TRUE(tables.joins.empty()) << seqs;
    EXPECT_EQ(std::ssize(tables.items), 3 * seqs);
  }
}

TEST(WorkPlan, CallsAreWholeRegisterTilesWhereTheyCanBe) {
  for (int64_t group = 1; group <= 80; ++group) {
    const int64_t rows = positions_per_call(group) * group;
    EXPECT_TRUE(rows <= 60 || rows == group) << group;
    EXPECT_GE(rows, std::min<int64_t>(group <= 10 ? 36 : 30, group * 60)) << group;
    EXPECT_TRUE(group > 10 || rows % 6 == 0) << group;
  }
}

}  // namespace
}  // namespace spyre::attention
