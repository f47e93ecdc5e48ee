#include "plugins/spyre/compiler/assign_extents.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"

namespace spyre::compiler {

using device::Axis;
using device::AxisSegment;
using device::Rule;

namespace {

// Whole sticks of 16-bit elements are whole sticks of 32-bit ones too.
constexpr int64_t kStick = 64;
// A regrouping that would put every few elements on a stick of their own.
constexpr size_t kMaxCuts = 1 << 16;

struct Cut {
  int64_t gap = 0;   // padding before the cut beyond the end of the stick
  int64_t head = 0;  // > 0: the middle of a rotary head of this size
};
using Cuts = std::map<int64_t, Cut>;

class Solver {
 public:
  Solver(const graph::Graph& graph, const ExtentRelations& relations)
      : graph_(graph), relations_(relations), parent_(relations.extent.size()), cuts_(relations.extent.size()) {
    std::iota(parent_.begin(), parent_.end(), 0);
    for (const auto& tie : relations.ties) parent_[find(tie.a)] = find(tie.b);
  }

  // The padding that dimension |node| has already.
  void give(int node, const Axis& axis) {
    int64_t from = 0, card = 0;
    const std::vector<AxisSegment>& segments = axis.segments();
    for (size_t s = 0; s < segments.size() && axis.padded(); ++s) {
      const AxisSegment& segment = segments[s];
      for (int64_t i = 0; i < segment.count; ++i) {
        const bool last = s + 1 == segments.size() && i + 1 == segment.count;
        const int64_t parts = segment.halves ? 2 : 1;
        for (int64_t part = 0; part < parts; ++part) {
          const int64_t next = card + segment.card_unit / parts;
          from += segment.unit / parts;
          const int64_t gap = next - device::round_up(card + segment.unit / parts, kStick);
          // A last unit that is not padded ends nowhere else than its dimension does.
          if (!last || segment.card_unit > segment.unit) {
            add(node, from, {gap, segment.halves && part == 0 ? segment.unit : 0}, 0);
          }
          card = next;
        }
      }
    }
  }

  void solve() {
    for (const auto& filled : relations_.filled) add(filled.node, extent(filled.node), {}, filled.op);
    do {
      changed_ = false;
      for (const auto& part : relations_.parts) relate(part);
      for (const auto& units : relations_.units) relate(units);
      for (const auto& heads : relations_.heads) relate(heads);
    } while (changed_);
  }

  Axis axis(int node) {
    std::vector<AxisSegment> segments;
    const Cuts& cuts = cuts_[find(node)];
    int64_t from = 0, card = 0;
    for (auto cut = cuts.begin(); cut != cuts.end(); ++cut) {
      const int64_t length = cut->first - from;
      const int64_t next = device::round_up(card + length, kStick) + cut->second.gap;
      const auto after = std::next(cut);
      const int64_t head = cut->second.head;
      if (head > 0 && length == head / 2 && after != cuts.end() && after->first == from + head &&
          after->second.gap == 0 && cut->second.gap == 0) {
        segments.push_back({1, head, 2 * (next - card), true});
        card += 2 * (next - card);
        from += head;
        cut = after;
        continue;
      }
      segments.push_back({1, length, next - card, false});
      from = cut->first;
      card = next;
    }
    if (from < extent(node)) segments.push_back({1, extent(node) - from, extent(node) - from, false});
    return Axis(std::move(segments));
  }

 private:
  int find(int node) {
    while (parent_[node] != node) node = parent_[node] = parent_[parent_[node]];
    return node;
  }
  int64_t extent(int node) const { return relations_.extent[node]; }

  int64_t card(int node) {
    int64_t from = 0, card = 0;
    for (const auto& [at, cut] : cuts_[find(node)]) {
      card = device::round_up(card + at - from, kStick) + cut.gap;
      from = at;
    }
    return card + extent(node) - from;
  }
  bool padded(int node) { return card(node) > extent(node); }

  void add(int node, int64_t at, const Cut& cut, int32_t op) {
    Cuts& cuts = cuts_[find(node)];
    const auto [found, inserted] = cuts.try_emplace(at, cut);
    Cut& there = found->second;
    changed_ = changed_ || inserted || cut.gap > there.gap || cut.head > there.head;
    there.gap = std::max(there.gap, cut.gap);
    there.head = std::max(there.head, cut.head);
    if (cuts.size() > kMaxCuts) {
      device::refuse(Rule::kReshapeAcrossStick,
                     fmt::format("{} would begin a stick at {} places of a dimension of {}",
                                 describe(graph_, graph_.ops[op]), cuts.size(), extent(node)));
    }
  }

  void relate(const ExtentRelations::Part& r) {
    const int64_t end = r.start + extent(r.part);
    const bool aligned = r.start % kStick == 0 && (end % kStick == 0 || end == extent(r.whole));
    if (aligned && !padded(r.whole) && !padded(r.part)) return;
    if (r.start > 0) add(r.whole, r.start, {}, r.op);
    add(r.whole, end, {}, r.op);
    const Cuts whole = cuts_[find(r.whole)], part = cuts_[find(r.part)];
    for (auto cut = whole.upper_bound(r.start); cut != whole.end() && cut->first <= end; ++cut) {
      add(r.part, cut->first - r.start, cut->second, r.op);
    }
    for (const auto& [at, cut] : part) add(r.whole, r.start + at, cut, r.op);
  }

  void relate(const ExtentRelations::Units& r) {
    const int64_t unit = extent(r.unit), count = extent(r.whole) / unit;
    if (!r.halves && unit % kStick == 0 && !padded(r.whole) && !padded(r.unit)) return;
    add(r.unit, unit, {}, r.op);
    if (r.halves) add(r.whole, unit, {0, 2 * unit}, r.op);
    const Cuts whole = cuts_[find(r.whole)];
    for (const auto& [at, cut] : whole) {
      const int64_t inside = (at - 1) % unit + 1;  // 1 .. unit
      // The middle of this very head is a boundary between its halves.
      add(r.unit, inside, {cut.gap, r.halves ? 0 : cut.head}, r.op);
    }
    const Cuts of_unit = cuts_[find(r.unit)];
    for (int64_t i = 0; i < count; ++i) {
      for (const auto& [at, cut] : of_unit) add(r.whole, i * unit + at, cut, r.op);
    }
  }

  void relate(const ExtentRelations::Heads& r) {
    add(r.key, extent(r.key), {}, r.op);
    add(r.value, extent(r.value), {}, r.op);
    const int64_t difference = card(r.key) - card(r.value);
    if (difference == 0) return;
    const int narrow = difference > 0 ? r.value : r.key;
    const int64_t end = extent(narrow), gap = cuts_[find(narrow)].at(end).gap;
    add(narrow, end, {gap + std::abs(difference), 0}, r.op);
  }

  const graph::Graph& graph_;
  const ExtentRelations& relations_;
  std::vector<int> parent_;
  std::vector<Cuts> cuts_;
  bool changed_ = false;
};

}  // namespace

int64_t assign_extents(CardState& state) {
  const graph::Graph& graph = state.graph;
  state.relations = collect_relations(graph, state.layouts);
  Solver solver(graph, state.relations);
  const auto give = [&](const std::vector<graph::ValueId>& values, const std::vector<std::vector<Axis>>& axes) {
    for (size_t i = 0; i < axes.size(); ++i) {
      for (size_t d = 0; d < axes[i].size(); ++d) {
        solver.give(state.relations.dim.at(values.at(i)).at(d), axes[i][d]);
      }
    }
  };
  give(graph.inputs, state.given.inputs);
  give(graph.parameters, state.given.parameters);
  give(graph.states, state.given.states);
  give(graph.outputs, state.given.outputs);
  solver.solve();
  int64_t padded = 0;
  state.axes.assign(graph.values.size(), {});
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const graph::Type& type = graph.values[v].type;
    for (int d = 0; d < type.rank(); ++d) {
      state.axes[v].push_back(solver.axis(state.relations.dim[v][d]));
      const bool more = state.axes[v].back().padded();
      SPYRE_CHECK(!type.dims[d].rows || !more, "the rows of %{} are padded", graph.values[v].name);
      padded += more;
    }
  }
  return padded;
}

}  // namespace spyre::compiler
