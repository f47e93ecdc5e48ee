#include "plugins/spyre/compiler/propagate_layouts.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "graph/op_def.h"
#include "plugins/spyre/compiler/lower/card_ops.h"

namespace spyre::compiler {

using device::Rule;
using graph::Graph;
using graph::Op;
using graph::Type;
using graph::ValueId;

namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();
constexpr size_t kWidths[] = {64, 200};

// What the layouts of an operator depend on beside its operands' sticks.
void check_sticks(const Graph& graph, const Op& op, RuleLog& log) {
  require_rule(log, Rule::kNoLowering, has_card_lowering(op.name()),
               [&] { return fmt::format("{} has no layout rule", describe(graph, op)); });
  if (op.def->family == graph::OpFamily::kGather) {
    const Type& table = graph.type(op.inputs[0]);
    require_rule(log, Rule::kGatherOnStick, table.rank() > 1, [&] {
      return fmt::format("{} gathers single elements of {}", describe(graph, op), table.to_string());
    });
  }
  if (op.name() != "reshape") return;
  const Type &from = graph.type(op.inputs[0]), &to = graph.type(op.outputs[0]);
  for (const ReshapeGroup& group : reshape_groups(from, to)) {
    require_rule(log, Rule::kReshapeAcrossStick, group.from.size() == 1 || group.to.size() == 1, [&] {
      return fmt::format("{} turns {} into {}", describe(graph, op), from.to_string(), to.to_string());
    });
  }
}

// The graph with everything that a search asks of it again and again.
struct Problem {
  explicit Problem(const Graph& graph) : graph(graph), readers(graph.values.size(), 0) {
    for (const Op& op : graph.ops) {
      choices.push_back(stick_choices(graph, op));
      for (const ValueId v : op.inputs) ++readers[v];
    }
  }

  const Type& type(ValueId v) const { return graph.type(v); }
  // Moving a value that lies as |own| to where |need| wants it; the only place there is, where it is no member of it.
  std::optional<Rule> obstacle(ValueId v, int own, StickSet need) const {
    return restickify_obstacle(type(v), own, need.first());
  }

  const Graph& graph;
  std::vector<std::vector<StickChoice>> choices;  // per operator
  std::vector<int> readers;                       // per value: operands that read it
};

// ---------------------------------------------------------------- step by step

// Each operator takes the cheapest of what its operands offer; the first operand's layout among equals.
class Greedy {
 public:
  explicit Greedy(const Problem& p) : p_(p), at_hand_(p.graph.values.size()) {
    layouts_.stick.assign(p.graph.values.size(), -1);
    for (size_t v = 0; v < p.graph.values.size(); ++v) {
      if (p.graph.values[v].role == graph::Role::kResult) continue;
      layouts_.stick[v] = given_stick(p.graph.values[v].type);
      at_hand_[v] = StickSet::of(layouts_.stick[v]);
    }
  }

  void run() {
    for (index_ = 0; index_ < static_cast<int32_t>(p_.graph.ops.size()); ++index_) step();
  }

  Layouts layouts_;
  int64_t cost_ = 0;
  std::optional<Rule> obstacle_;  // the first one met
  std::string detail_;

 private:
  struct Fit {
    const StickChoice* choice = nullptr;
    int64_t cost = 0;
    std::optional<Rule> obstacle;
    size_t offered_by = 0;  // the first operand that lies as the choice wants it
  };

  Fit fit(const Op& op, const StickChoice& choice) const {
    Fit fit{.choice = &choice, .offered_by = op.inputs.size()};
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const ValueId v = op.inputs[i];
      const StickSet need = choice.operands[i];
      if (need.contains(layouts_.stick[v])) {
        if (!(need == StickSet::all()) && is_offer(op, choice, i)) fit.offered_by = std::min(fit.offered_by, i);
        continue;
      }
      if (fit.obstacle.has_value()) continue;
      fit.obstacle = obstacle(op, choice, i);
      if (!(at_hand_[v] & need).empty()) continue;
      fit.cost += restickify_cost(p_.type(v), need.first());
    }
    return fit;
  }

  // Operand |i| has in the stick what the choice puts there, not one element of something broadcast.
  bool is_offer(const Op& op, const StickChoice& choice, size_t i) const {
    if (op.def->family != graph::OpFamily::kBinary) return true;
    const int shift = p_.type(op.outputs[0]).rank() - p_.type(op.inputs[i]).rank();
    const int own = layouts_.stick[op.inputs[i]];
    return (own < 0 ? -1 : own + shift) == choice.result;
  }

  std::optional<Rule> obstacle(const Op& op, const StickChoice& choice, size_t i) const {
    const ValueId v = op.inputs[i];
    const bool repeats = op.def->family == graph::OpFamily::kBinary && is_thin(p_.type(v), choice.operands[i].first());
    if (repeats && !is_thin(p_.type(v), layouts_.stick[v])) {
      return is_thin(p_.type(op.outputs[0]), choice.result) ? Rule::kRestickifySparse : Rule::kMixedStick;
    }
    return p_.obstacle(v, layouts_.stick[v], choice.operands[i]);
  }

  void step() {
    const Op& op = p_.graph.ops[index_];
    const std::vector<StickChoice>& choices = p_.choices[index_];
    std::optional<Fit> best, blocked;
    for (const StickChoice& choice : choices) {
      const Fit f = fit(op, choice);
      if (f.offered_by == op.inputs.size() && choices.size() > 1) continue;  // nobody lies that way
      std::optional<Fit>& kept = f.obstacle.has_value() ? blocked : best;
      if (!kept.has_value() || f.cost < kept->cost || (f.cost == kept->cost && f.offered_by < kept->offered_by))
        kept = f;
    }
    if (!best.has_value() && !blocked.has_value()) {  // all ways need a move: the first that is possible
      for (const StickChoice& choice : choices) {
        const Fit f = fit(op, choice);
        std::optional<Fit>& kept = f.obstacle.has_value() ? blocked : best;
        if (!kept.has_value() || f.cost < kept->cost) kept = f;
      }
    }
    if (!best.has_value() && !obstacle_.has_value()) {
      obstacle_ = blocked.has_value() ? *blocked->obstacle : Rule::kMixedStick;
      detail_ = explain(op);
    }
    take(op, best.has_value() ? *best->choice : blocked.has_value() ? *blocked->choice : choices.front());
  }

  void take(const Op& op, const StickChoice& choice) {
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const ValueId v = op.inputs[i];
      const StickSet need = choice.operands[i];
      if (need.contains(layouts_.stick[v])) continue;
      const int to = need.first();
      if (!at_hand_[v].contains(to)) cost_ += restickify_cost(p_.type(v), to);
      at_hand_[v] = at_hand_[v] | StickSet::of(to);
      layouts_.relays.push_back({index_, static_cast<int32_t>(i), to});
    }
    const ValueId out = op.outputs[0];
    layouts_.stick[out] = choice.result;
    at_hand_[out] = StickSet::of(choice.result);
  }

  std::string explain(const Op& op) const {
    std::string text = describe(p_.graph, op) + " joins";
    for (const ValueId v : op.inputs) {
      if (!p_.type(v).is_tensor()) continue;
      const int s = layouts_.stick[v];
      text += fmt::format(" %{} ({}) with {} in the stick", p_.graph.value(v).name, p_.type(v).to_string(),
                          s < 0 ? "nothing" : fmt::format("dimension {}", s));
    }
    return text;
  }

  const Problem& p_;
  std::vector<StickSet> at_hand_;
  int32_t index_ = 0;
};

// ---------------------------------------------------------------- the bound

// What is still to pay at least, by edge: value, in one layout at hand, read by operand i of an operator.
class Bound {
 public:
  explicit Bound(const Problem& p) : p_(p), result_(p.graph.values.size()) {
    first_edge_.resize(p.graph.ops.size());
    size_t edges = 0;
    for (size_t o = 0; o < first_edge_.size(); ++o) {
      first_edge_[o] = edges;
      edges += p.graph.ops[o].inputs.size();
    }
    edge_.resize(edges);
    for (size_t o = first_edge_.size(); o-- > 0;) add(o);
  }

  double edge(size_t op, size_t operand, StickSet at_hand) const {
    double least = kImpossible;
    for (int s = -1; s < graph::kMaxRank; ++s) {
      if (at_hand.contains(s)) least = std::min(least, edge_[first_edge_[op] + operand][s + 1]);
    }
    return least;
  }

 private:
  using PerStick = std::array<double, graph::kMaxRank + 1>;

  void add(size_t o) {
    const Op& op = p_.graph.ops[o];
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const ValueId v = op.inputs[i];
      PerStick& at = edge_[first_edge_[o] + i];
      at.fill(kImpossible);
      for (int s = -1; s < p_.type(v).rank(); ++s) {
        for (const StickChoice& choice : p_.choices[o]) {
          double cost = later(op.outputs[0], choice.result) / static_cast<double>(op.inputs.size());
          const StickSet need = choice.operands[i];
          if (!need.contains(s)) {
            if (p_.obstacle(v, s, need).has_value()) continue;
            cost += static_cast<double>(restickify_cost(p_.type(v), need.first())) / p_.readers[v];
          }
          at[s + 1] = std::min(at[s + 1], cost);
        }
      }
      if (!p_.type(v).is_tensor())
        at.fill(later(op.outputs[0], p_.choices[o][0].result) / static_cast<double>(op.inputs.size()));
      PerStick& sum = result_[v].first;
      if (!std::exchange(result_[v].second, true)) sum.fill(0);
      for (size_t s = 0; s < sum.size(); ++s) sum[s] += at[s];
    }
  }

  double later(ValueId v, int stick) const { return result_[v].second ? result_[v].first[stick + 1] : 0; }

  const Problem& p_;
  std::vector<size_t> first_edge_;
  std::vector<PerStick> edge_;
  std::vector<std::pair<PerStick, bool>> result_;  // per value: what its readers pay, once one is known
};

// ---------------------------------------------------------------- the beam

class Beam {
 public:
  Beam(const Problem& p, const Bound& bound, int64_t limit, size_t width)
      : p_(p), bound_(bound), limit_(limit), width_(width) {
    last_reader_.assign(p.graph.values.size(), -1);
    for (size_t o = 0; o < p.graph.ops.size(); ++o) {
      for (const ValueId v : p.graph.ops[o].inputs) last_reader_[v] = static_cast<int>(o);
    }
  }

  // Layouts that cost less than the limit, if the beam met any.
  std::optional<std::pair<int64_t, Layouts>> run() {
    std::vector<StickSet> given(p_.graph.values.size());
    for (size_t v = 0; v < given.size(); ++v) {
      if (p_.graph.values[v].role != graph::Role::kResult)
        given[v] = StickSet::of(given_stick(p_.graph.values[v].type));
    }
    std::vector<State> states{{std::move(given), 0, -1}};
    for (size_t o = 0; o < p_.graph.ops.size() && !states.empty(); ++o) states = advance(o, std::move(states));
    if (states.empty()) return std::nullopt;
    const State& best =
        *std::min_element(states.begin(), states.end(), [](const State& a, const State& b) { return a.cost < b.cost; });
    return std::pair(best.cost, trace(best.step));
  }
  bool cut() const { return cut_; }

 private:
  struct State {
    std::vector<StickSet> at_hand;  // per value; empty when it is dead or not yet there
    int64_t cost = 0;
    int32_t step = -1;  // how it came about: an index into steps_
  };
  struct Step {
    int32_t before = -1;
    int32_t choice = 0;
  };
  struct Ranked {
    State state;
    double least = 0;
  };

  std::optional<State> follow(const State& from, size_t o, const StickChoice& choice) const {
    const Op& op = p_.graph.ops[o];
    State to{from.at_hand, from.cost, -1};
    bool offered = choice.aligned || p_.choices[o].size() == 1;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const ValueId v = op.inputs[i];
      const StickSet need = choice.operands[i];
      if (!p_.type(v).is_tensor()) continue;
      if (!(to.at_hand[v] & need).empty()) {
        offered = true;
        continue;
      }
      if (p_.obstacle(v, own(from, v), need).has_value()) return std::nullopt;
      to.cost += restickify_cost(p_.type(v), need.first());
      to.at_hand[v] = to.at_hand[v] | StickSet::of(need.first());
    }
    if (!offered) return std::nullopt;
    for (const ValueId v : op.inputs) {
      if (last_reader_[v] == static_cast<int>(o)) to.at_hand[v] = {};
    }
    if (last_reader_[op.outputs[0]] >= 0) to.at_hand[op.outputs[0]] = StickSet::of(choice.result);
    return to;
  }

  // Only thinness decides whether a value can move, and it is the same in every layout at hand.
  static int own(const State& state, ValueId v) { return state.at_hand[v].first(); }

  double rest(const State& state, size_t next) const {
    double sum = 0;
    for (size_t o = next; o < p_.graph.ops.size(); ++o) {
      const Op& op = p_.graph.ops[o];
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        const StickSet at_hand = state.at_hand[op.inputs[i]];
        if (!at_hand.empty()) sum += bound_.edge(o, i, at_hand);
      }
    }
    return sum;
  }

  std::vector<State> advance(size_t o, std::vector<State> states) {
    std::map<std::vector<uint8_t>, size_t> seen;
    std::vector<Ranked> next;
    for (const State& state : states) {
      for (size_t c = 0; c < p_.choices[o].size(); ++c) {
        std::optional<State> made = follow(state, o, p_.choices[o][c]);
        if (!made.has_value()) continue;
        const double least = static_cast<double>(made->cost) + rest(*made, o + 1);
        // Shares of edges are sums of fractions: what is below the limit by less than that is no gain.
        if (least > static_cast<double>(limit_) - 0.5) continue;
        std::vector<uint8_t> key;
        for (const StickSet set : made->at_hand) key.push_back(set.bits());
        const auto [found, inserted] = seen.emplace(std::move(key), next.size());
        if (!inserted && next[found->second].state.cost <= made->cost) continue;
        steps_.push_back({state.step, static_cast<int32_t>(c)});
        made->step = static_cast<int32_t>(steps_.size()) - 1;
        Ranked ranked{std::move(*made), least};
        if (inserted) {
          next.push_back(std::move(ranked));
        } else {
          next[found->second] = std::move(ranked);
        }
      }
    }
    std::stable_sort(next.begin(), next.end(), [](const Ranked& a, const Ranked& b) { return a.least < b.least; });
    cut_ = cut_ || next.size() > width_;
    if (next.size() > width_) next.resize(width_);
    std::vector<State> kept;
    for (Ranked& ranked : next) kept.push_back(std::move(ranked.state));
    return kept;
  }

  // The choices that led to |step|, played again.
  Layouts trace(int32_t step) const {
    std::vector<int32_t> taken;
    for (; step >= 0; step = steps_[step].before) taken.push_back(steps_[step].choice);
    std::reverse(taken.begin(), taken.end());
    Layouts layouts;
    layouts.stick.assign(p_.graph.values.size(), -1);
    std::vector<StickSet> at_hand(p_.graph.values.size());
    for (size_t v = 0; v < at_hand.size(); ++v) {
      if (p_.graph.values[v].role == graph::Role::kResult) continue;
      layouts.stick[v] = given_stick(p_.graph.values[v].type);
      at_hand[v] = StickSet::of(layouts.stick[v]);
    }
    for (size_t o = 0; o < taken.size(); ++o) {
      const Op& op = p_.graph.ops[o];
      const StickChoice& choice = p_.choices[o][taken[o]];
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        const ValueId v = op.inputs[i];
        if (!p_.type(v).is_tensor() || choice.operands[i].contains(layouts.stick[v])) continue;
        const StickSet copies = at_hand[v] & choice.operands[i];
        const int to = copies.empty() ? choice.operands[i].first() : copies.first();
        at_hand[v] = at_hand[v] | StickSet::of(to);
        layouts.relays.push_back({static_cast<int32_t>(o), static_cast<int32_t>(i), to});
      }
      layouts.stick[op.outputs[0]] = choice.result;
      at_hand[op.outputs[0]] = StickSet::of(choice.result);
    }
    return layouts;
  }

  const Problem& p_;
  const Bound& bound_;
  const int64_t limit_;
  const size_t width_;
  std::vector<int> last_reader_;
  std::vector<Step> steps_;
  bool cut_ = false;
};

void count_moves(const Problem& p, const Layouts& layouts, RuleLog& log) {
  for (const Layouts::Relay& relay : layouts.relays) {
    const bool fp32 = p.type(p.graph.ops[relay.op].inputs[relay.operand]).dtype == DType::kF32;
    ++log[fp32 ? Rule::kRestickifyFp32 : Rule::kRestickifySparse];
  }
  for (const Op& op : p.graph.ops) {
    if (op.def->family == graph::OpFamily::kBinary || op.name() == "concat") ++log[Rule::kMixedStick];
  }
}

}  // namespace

Layouts propagate_layouts(const Graph& graph, RuleLog& log, LayoutSearch* found) {
  for (const Op& op : graph.ops) check_sticks(graph, op, log);
  const Problem problem(graph);
  Greedy greedy(problem);
  greedy.run();
  const bool possible = !greedy.obstacle_.has_value();
  LayoutSearch search{.greedy_cost = possible ? greedy.cost_ : -1, .cost = greedy.cost_};
  Layouts layouts = std::move(greedy.layouts_);
  bool solved = possible;
  if (!possible || greedy.cost_ > 0) {
    search.searched = true;
    const Bound bound(problem);
    int64_t limit = possible ? greedy.cost_ : std::numeric_limits<int64_t>::max();
    for (const size_t width : kWidths) {
      Beam beam(problem, bound, limit, width);
      auto better = beam.run();
      search.cut = beam.cut();
      if (better.has_value()) {
        limit = search.cost = better->first;
        layouts = std::move(better->second);
        solved = true;
      }
      if (!search.cut) break;
    }
  }
  if (!solved) device::refuse(*greedy.obstacle_, greedy.detail_);
  count_moves(problem, layouts, log);
  if (found != nullptr) *found = search;
  return layouts;
}

int64_t propagate_layouts(CardState& state) {
  state.layouts = propagate_layouts(state.graph, state.log);
  return static_cast<int64_t>(state.layouts.relays.size());
}

}  // namespace spyre::compiler
