// The layout search against every choice there is, on small random graphs; and what single operators choose.
#include "plugins/spyre/compiler/propagate_layouts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <set>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/random_graph.h"
#include "graph/text.h"

namespace spyre::compiler {
namespace {

using graph::Graph;
using graph::Op;
using graph::ValueId;

// Device elements that |layouts| move: every value once per layout.
int64_t cost_of(const Graph& graph, const Layouts& layouts) {
  std::set<std::pair<ValueId, int>> moved;
  int64_t cost = 0;
  for (const Layouts::Relay& relay : layouts.relays) {
    const ValueId value = graph.ops[relay.op].inputs[relay.operand];
    if (moved.emplace(value, relay.to_stick).second) cost += restickify_cost(graph.type(value), relay.to_stick);
  }
  return cost;
}

// Every operand lies, itself or moved, in a layout of a choice that gives the result its own.
void expect_legal(const Graph& graph, const Layouts& layouts) {
  for (size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    bool legal = false;
    for (const StickChoice& choice : stick_choices(graph, op)) {
      bool fits = choice.result == layouts.stick[op.outputs[0]];
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        int at = layouts.stick[op.inputs[i]];
        for (const Layouts::Relay& relay : layouts.relays) {
          if (relay.op != static_cast<int32_t>(o) || relay.operand != static_cast<int32_t>(i)) continue;
          EXPECT_EQ(restickify_obstacle(graph.type(op.inputs[i]), at, relay.to_stick), std::nullopt);
          at = relay.to_stick;
        }
        fits = fits && choice.operands[i].contains(at);
      }
      legal = legal || fits;
    }
    EXPECT_TRUE(legal) << op.name() << "\n" << graph::print(graph);
  }
}

// Walks all combinations of choices; the only rule it knows is that a choice nobody offers must be worth it.
class Exhaustive {
 public:
  explicit Exhaustive(const Graph& graph) : graph_(graph), at_(graph.values.size()) {
    for (size_t v = 0; v < at_.size(); ++v) {
      if (graph.values[v].role != graph::Role::kResult) at_[v] = {given_stick(graph.values[v].type)};
    }
    walk(0, 0);
  }
  std::optional<int64_t> least;
  int64_t walked = 0;

 private:
  void walk(size_t o, int64_t cost) {
    if (++walked > 300000) return;
    if (o == graph_.ops.size()) {
      if (!least.has_value() || cost < *least) least = cost;
      return;
    }
    const Op& op = graph_.ops[o];
    const std::vector<StickChoice> choices = stick_choices(graph_, op);
    for (const StickChoice& choice : choices) {
      const std::vector<std::set<int>> before = at_;
      int64_t more = 0;
      bool possible = true, offered = choice.aligned || choices.size() == 1;
      for (size_t i = 0; i < op.inputs.size() && possible; ++i) {
        const ValueId v = op.inputs[i];
        if (!graph_.type(v).is_tensor()) continue;
        bool there = false;
        for (const int s : at_[v]) there = there || choice.operands[i].contains(s);
        if (there) {
          offered = true;
          continue;
        }
        const int to = choice.operands[i].first();
        possible = !restickify_obstacle(graph_.type(v), *at_[v].begin(), to).has_value();
        at_[v].insert(to);
        more += restickify_cost(graph_.type(v), to);
      }
      if (possible && offered) {
        at_[op.outputs[0]] = {choice.result};
        walk(o + 1, cost + more);
      }
      at_ = before;
    }
  }

  const Graph& graph_;
  std::vector<std::set<int>> at_;  // layouts at hand, per value
};

// Transposes, sums and products of a few square and narrow values: layouts that fight each other.
Graph tangle(uint64_t seed, int ops) {
  std::mt19937_64 random(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  static constexpr int64_t kExtents[] = {64, 64, 128, 192, 32};
  const int64_t n = kExtents[below(5)], m = kExtents[below(5)];
  graph::Builder b("tangle");
  std::vector<ValueId> pool{b.input("x", graph::Type::tensor(DType::kF16, std::vector<int64_t>{n, m})),
                            b.input("z", graph::Type::tensor(DType::kF16, std::vector<int64_t>{m, n}))};
  for (int i = 0; i < ops; ++i) {
    const ValueId x = pool[below(pool.size())], y = pool[below(pool.size())];
    const graph::Type tx = b.type(x), ty = b.type(y);
    switch (below(6)) {
      case 0:
      case 1:
        pool.push_back(b.op1("transpose", {x}, {{"perm", std::vector<int64_t>{1, 0}}}));
        break;
      case 2:
        pool.push_back(b.op1(below(2) == 0 ? "exp" : "softmax", {x}, {}));
        break;
      case 3:
        if (tx.extent(1) == ty.extent(0)) pool.push_back(b.op1("matmul", {x, y}, {}));
        break;
      default:
        if (tx == ty) pool.push_back(b.op1("add", {x, y}, {}));
    }
  }
  b.output(pool.back());
  if (pool.size() > 4) b.output(pool[pool.size() / 2]);
  return b.finish();
}

void compare(const Graph& graph, int& searched, int& gained) {
  RuleLog log;
  LayoutSearch search;
  const Exhaustive all(graph);
  if (all.walked > 300000) return;
  Layouts layouts;
  try {
    layouts = propagate_layouts(graph, log, &search);
  } catch (const Error& error) {
    EXPECT_FALSE(all.least.has_value()) << error.what() << "\n" << graph::print(graph);
    return;
  }
  ASSERT_TRUE(all.least.has_value()) << graph::print(graph);
  expect_legal(graph, layouts);
  EXPECT_EQ(cost_of(graph, layouts), search.cost);
  EXPECT_EQ(search.cost, *all.least) << graph::print(graph);
  if (search.greedy_cost >= 0) {
    EXPECT_LE(search.cost, search.greedy_cost);
  }
  searched += search.searched;
  gained += search.greedy_cost < 0 || search.cost < search.greedy_cost;
}

TEST(PropagateLayouts, EqualsEveryChoiceTried) {
  int searched = 0, gained = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) compare(tangle(seed, 4 + static_cast<int>(seed % 8)), searched, gained);
  EXPECT_GT(searched, 150);
  EXPECT_GT(gained, 20) << "the step-by-step choice was always the best: nothing was tested";
}

TEST(PropagateLayouts, EqualsEveryChoiceTriedOnAllOperators) {
  int searched = 0, gained = 0;
  for (uint64_t seed = 9000; seed < 9600; ++seed) {
    const Graph graph = graph::random_graph(seed, {.min_ops = 3, .max_ops = 8}).graph;
    RuleLog log;
    compare(graph, searched, gained);
  }
  EXPECT_GT(searched, 50);
}

TEST(PropagateLayouts, IsNeverWorseThanStepByStep) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RuleLog log;
    LayoutSearch search;
    const Graph graph = tangle(seed, 40);
    expect_legal(graph, propagate_layouts(graph, log, &search));
    if (search.greedy_cost >= 0) {
      EXPECT_LE(search.cost, search.greedy_cost);
    }
  }
}

// Step by step the sum and its exponential are moved one by one, each for its reader; moving the sum at once serves
// all.
TEST(PropagateLayouts, LooksAhead) {
  const Graph graph = graph::parse(R"(graph g {
    input %x : f16[64,64]
    input %y : f16[64,64]
    %a = transpose(%x) {perm=[1,0]}
    %b = transpose(%y) {perm=[1,0]}
    %s = add(%a, %b)
    %u = exp(%s)
    %p = softmax(%u)
    %q = matmul(%s, %y)
    %r = matmul(%u, %y)
    return %p, %q, %r
  })");
  RuleLog log;
  LayoutSearch search;
  const Layouts layouts = propagate_layouts(graph, log, &search);
  EXPECT_EQ(search.greedy_cost, 2 * 64 * 64);
  EXPECT_EQ(search.cost, 64 * 64);
  EXPECT_EQ(layouts.relays, (std::vector<Layouts::Relay>{{3, 0, 1}, {5, 0, 1}}));
}

Layouts layouts_of(const std::string& text) {
  RuleLog log;
  return propagate_layouts(graph::parse("graph g {\n" + text + "\n}"), log);
}

TEST(PropagateLayouts, ViewsCarryTheStick) {
  EXPECT_EQ(layouts_of("input %x : f16[4,64]\n%y = transpose(%x) {perm=[1,0]}\nreturn %y").stick[1], 0);
  EXPECT_EQ(layouts_of("input %x : f16[4,128]\n%y = reshape(%x) {shape=[4,2,64]}\nreturn %y").stick[1], 2);
  EXPECT_EQ(layouts_of("input %x : f16[4,64]\n%y = slice(%x) {axis=0, start=1, size=2}\nreturn %y").stick[1], 1);
  EXPECT_EQ(layouts_of("input %x : f16[4,64]\n%y = reduce_sum(%x) {axis=1}\nreturn %y").stick[1], -1);
  EXPECT_EQ(layouts_of("input %x : f16[4,64]\n%y = reduce_sum(%x) {axis=0}\nreturn %y").stick[1], 0);
}

TEST(PropagateLayouts, AProductMovesAWeightThatLiesTheOtherWay) {
  EXPECT_TRUE(layouts_of("input %x : f16[4,64]\nparam %w : f16[64,64]\n%y = matmul(%x, %w)\nreturn %y").relays.empty());
  const Layouts linear = layouts_of("input %x : f16[4,64]\nparam %w : f16[64,64]\n%y = linear(%x, %w)\nreturn %y");
  EXPECT_EQ(linear.relays, (std::vector<Layouts::Relay>{{0, 1, 0}}));
}

}  // namespace
}  // namespace spyre::compiler
