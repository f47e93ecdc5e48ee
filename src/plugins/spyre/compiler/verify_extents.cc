#include "plugins/spyre/compiler/verify_extents.h"

#include <algorithm>

#include "base/error.h"

namespace spyre::compiler {

using device::Axis;
using device::Rule;

namespace {

constexpr int64_t kStick = 64;

class AxisCheck {
 public:
  AxisCheck(const graph::Graph& graph, const Axes& axes, const ExtentRelations& relations, RuleLog& log)
      : graph_(graph), relations_(relations), log_(log), axis_(relations.extent.size(), nullptr) {
    for (size_t v = 0; v < axes.size(); ++v) {
      for (size_t d = 0; d < axes[v].size(); ++d) axis_[relations.dim[v][d]] = &axes[v][d];
    }
    // A pseudo dimension takes the axis of what it is tied to, if that is a dimension of a value.
    for (const auto& tie : relations.ties) {
      if (axis_[tie.a] == nullptr) axis_[tie.a] = axis_[tie.b];
      if (axis_[tie.b] == nullptr) axis_[tie.b] = axis_[tie.a];
    }
  }

  void run() {
    for (const auto& tie : relations_.ties) check(tie);
    for (const auto& part : relations_.parts) check(part);
    for (const auto& units : relations_.units) check(units);
    for (const auto& filled : relations_.filled) check(filled);
    for (const auto& heads : relations_.heads) check(heads);
  }

 private:
  std::string name(int32_t op) const { return describe(graph_, graph_.ops[op]); }

  void check(const ExtentRelations::Tie& r) {
    const Axis *a = axis_[r.a], *b = axis_[r.b];
    if (a == nullptr || b == nullptr) return;
    require_rule(log_, Rule::kExtentConflict,
                 *a == *b || (a->card_indices() == b->card_indices() && a->card() == b->card()),
                 [&] { return fmt::format("{} ties {} and {}", name(r.op), a->to_string(), b->to_string()); });
  }

  void check(const ExtentRelations::Part& r) {
    const Axis &whole = *axis_[r.whole], &part = *axis_[r.part];
    const int64_t start = whole.to_card(r.start);
    require_rule(log_, r.rule, start % kStick == 0, [&] {
      return fmt::format("{} begins at card element {} of {}", name(r.op), start, whole.to_string());
    });
    bool same = true;
    const bool plain = !whole.padded() && !part.padded();
    for (int64_t i = 0; i < part.logical() && same && !plain; ++i)
      same = whole.to_card(r.start + i) - start == part.to_card(i);
    require_rule(log_, Rule::kExtentConflict, same, [&] {
      return fmt::format("{} has {} for a part of {}", name(r.op), part.to_string(), whole.to_string());
    });
  }

  void check(const ExtentRelations::Units& r) {
    if (axis_[r.unit] == nullptr && !r.halves) return;
    const Axis& whole = *axis_[r.whole];
    const int64_t unit = relations_.extent[r.unit], count = whole.logical() / unit;
    const Rule rule = r.halves ? Rule::kRotaryHalf : Rule::kReshapeAcrossStick;
    if (!whole.padded() && unit % kStick == 0 && (axis_[r.unit] == nullptr || !axis_[r.unit]->padded())) {
      return require_rule(log_, rule, true, [] { return std::string(); });
    }
    const std::vector<int64_t> card = whole.card_indices();
    const int64_t stride = count > 1 ? card[unit] : kStick;
    bool regular = stride % kStick == 0;
    for (int64_t i = 0; i < whole.logical() && regular; ++i) {
      const int64_t inside = axis_[r.unit] != nullptr ? axis_[r.unit]->to_card(i % unit) : card[i % unit];
      regular = card[i] == i / unit * stride + inside;
    }
    require_rule(log_, rule, regular, [&] {
      return fmt::format("{} needs {} units of {} on whole sticks, {} lies as {}", name(r.op), count, unit,
                         whole.logical(), whole.to_string());
    });
  }

  void check(const ExtentRelations::Filled& r) {
    const Axis& axis = *axis_[r.node];
    require_rule(log_, Rule::kExtentConflict, axis.card() % kStick == 0, [&] {
      return fmt::format("{} needs whole sticks, {} lies as {}", name(r.op), axis.logical(), axis.to_string());
    });
  }

  void check(const ExtentRelations::Heads& r) {
    const int64_t key = axis_[r.key]->card(), value = axis_[r.value] != nullptr ? axis_[r.value]->card() : key;
    require_rule(log_, Rule::kHeadSize, key % kStick == 0 && key == value,
                 [&] { return fmt::format("{} has heads of {} for keys and {} for values", name(r.op), key, value); });
  }

  const graph::Graph& graph_;
  const ExtentRelations& relations_;
  RuleLog& log_;
  std::vector<const Axis*> axis_;
};

}  // namespace

int64_t verify_extents(CardState& state) {
  const ExtentRelations& r = state.relations;
  AxisCheck(state.graph, state.axes, r, state.log).run();
  return static_cast<int64_t>(r.ties.size() + r.parts.size() + r.units.size() + r.filled.size() + r.heads.size());
}

}  // namespace spyre::compiler
