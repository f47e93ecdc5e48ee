#include "plugins/spyre/compiler/plan_sticks.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "graph/op_def.h"

namespace spyre::compiler {

using device::Rule;
using graph::Op;
using graph::OpFamily;
using graph::Type;
using graph::ValueId;

std::vector<ReshapeGroup> reshape_groups(const Type& x, const Type& y) {
  auto real_dims = [](const Type& type) {
    std::vector<int> dims;
    for (int d = 0; d < type.rank(); ++d) {
      if (type.extent(d) > 1) dims.push_back(d);
    }
    return dims;
  };
  const std::vector<int> from = real_dims(x), to = real_dims(y);
  std::vector<ReshapeGroup> groups;
  for (size_t i = 0, j = 0; i < from.size();) {
    ReshapeGroup group{{from[i]}, {to[j]}};
    int64_t a = x.extent(from[i++]), b = y.extent(to[j++]);
    while (a != b) {
      if (a < b) {
        group.from.push_back(from[i]);
        a *= x.extent(from[i++]);
      } else {
        group.to.push_back(to[j]);
        b *= y.extent(to[j++]);
      }
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

bool is_thin(const Type& type, int stick) {
  return stick < 0 || type.extent(stick) == 1;
}

namespace {

class StickPlanner {
 public:
  StickPlanner(const graph::Graph& graph, RuleLog& log) : graph_(graph), log_(log) {}

  Layouts run() {
    layouts_.stick.assign(graph_.values.size(), -1);
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      if (graph_.values[v].role != graph::Role::kResult) layouts_.stick[v] = graph_.values[v].type.rank() - 1;
    }
    for (index_ = 0; index_ < static_cast<int32_t>(graph_.ops.size()); ++index_) plan(graph_.ops[index_]);
    return std::move(layouts_);
  }

 private:
  const Type& type(ValueId v) const { return graph_.type(v); }
  int stick(ValueId v) const { return layouts_.stick[v]; }
  static int last(const Type& type) { return type.rank() - 1; }

  // What keeps |value| from being re-laid to |to|, if anything. Between thin layouts whole sticks move.
  std::optional<Rule> obstacle(ValueId value, int to) const {
    const Type& t = type(value);
    if (stick(value) == to) return std::nullopt;
    if (is_thin(t, stick(value)) != is_thin(t, to)) return Rule::kRestickifySparse;
    if (!is_thin(t, to) && t.dtype == DType::kF32) return Rule::kRestickifyFp32;
    return std::nullopt;
  }

  // Operand |operand| of the current operator must lie with |to| in the stick.
  void need(int operand, int to) {
    const Op& op = graph_.ops[index_];
    const ValueId value = op.inputs[operand];
    if (stick(value) == to) return;
    const std::optional<Rule> rule = obstacle(value, to);
    if (rule.has_value()) {
      device::refuse(*rule, fmt::format("{} needs dimension {} of %{} ({}) in the stick, where {} is",
                                        describe(graph_, op), to, graph_.value(value).name, type(value).to_string(),
                                        stick(value) < 0 ? "none" : fmt::format("dimension {}", stick(value))));
    }
    require_rule(log_, type(value).dtype == DType::kF32 ? Rule::kRestickifyFp32 : Rule::kRestickifySparse, true,
                 [] { return std::string(); });
    layouts_.relays.push_back({index_, operand, to});
  }
  void need_last(int operand) { need(operand, last(type(graph_.ops[index_].inputs[operand]))); }

  void plan(const Op& op) {
    const std::string_view name = op.name();
    const ValueId out = op.outputs[0];
    int& result = layouts_.stick[out];
    switch (op.def->family) {
      case OpFamily::kUnary:
        result = stick(op.inputs[0]);
        return;
      case OpFamily::kBinary:
        return plan_binary(op);
      case OpFamily::kReduce:
        return plan_reduce(op);
      case OpFamily::kNorm:
        for (size_t i = 0; i < op.inputs.size(); ++i) need_last(static_cast<int>(i));
        result = last(type(out));
        return;
      case OpFamily::kMatmul:
        need_last(0);
        need(1, name == "linear" ? 0 : last(type(op.inputs[1])));
        result = last(type(out));
        return;
      case OpFamily::kGather:
        return plan_gather(op);
      default:
        break;
    }
    if (name == "slice") {
      result = stick(op.inputs[0]);
    } else if (name == "transpose") {
      const auto& perm = op.ints_attr("perm");
      for (int i = 0; i < static_cast<int>(perm.size()); ++i) {
        if (perm[i] == stick(op.inputs[0])) result = i;
      }
    } else if (name == "reshape") {
      plan_reshape(op);
    } else if (name == "broadcast") {
      const ValueId x = op.inputs[0];
      const int shift = type(out).rank() - type(x).rank();
      result = type(x).rank() == 0 ? last(type(out)) : stick(x) < 0 ? -1 : stick(x) + shift;
    } else if (name == "concat") {
      plan_concat(op);
    } else if (name == "rotary" || name == "rotate_2x2") {
      need_last(0);
      need_last(1);
      result = last(type(out));
    } else if (name == "kv_store") {
      need_last(1);
      need_last(2);
      result = last(type(out));
    } else if (name == "attention") {
      need_last(0);
      result = last(type(out));
    } else {
      device::refuse(Rule::kNoLowering, fmt::format("{} has no layout rule", describe(graph_, op)));
    }
  }

  // For each operand the stick it must be re-laid to (-2: as it is), or the rule that forbids |candidate|.
  struct Fit {
    std::vector<int> to;
    int64_t cost = 0;
    std::optional<Rule> obstacle;
  };

  Fit fit_binary(const Op& op, int candidate) const {
    Fit fit;
    const Type& out = type(op.outputs[0]);
    for (const ValueId value : op.inputs) {
      const Type& t = type(value);
      const int own = candidate < 0 ? -1 : candidate - (out.rank() - t.rank());
      const bool repeats = own < 0 || t.extent(own) == 1;  // along the stick, or one element per stick
      if (repeats) {
        if (!is_thin(t, stick(value))) {
          fit.obstacle = is_thin(out, candidate) ? Rule::kRestickifySparse : Rule::kMixedStick;
        }
        fit.to.push_back(-2);
      } else if (stick(value) == own) {
        fit.to.push_back(-2);
      } else {
        if (const auto rule = obstacle(value, own)) fit.obstacle = rule;
        fit.to.push_back(own);
        fit.cost += t.elements();
      }
    }
    return fit;
  }

  Fit fit_concat(const Op& op, int candidate) const {
    Fit fit;
    for (const ValueId value : op.inputs) {
      if (const auto rule = obstacle(value, candidate)) fit.obstacle = rule;
      const bool moves = stick(value) != candidate;
      fit.to.push_back(moves ? candidate : -2);
      fit.cost += moves ? type(value).elements() : 0;
    }
    return fit;
  }

  // Tries the sticks that operands have, in the coordinates of the result; the cheapest that works wins.
  template <typename FitFunction>
  void choose(const Op& op, const std::vector<int>& candidates, FitFunction&& fit_function) {
    std::optional<Fit> best;
    std::optional<Rule> obstacle;
    int chosen = -1;
    for (const int candidate : candidates) {
      Fit fit = fit_function(candidate);
      if (fit.obstacle.has_value()) {
        if (!obstacle.has_value()) obstacle = fit.obstacle;
      } else if (!best.has_value() || fit.cost < best->cost) {
        best = std::move(fit);
        chosen = candidate;
      }
    }
    require_rule(log_, obstacle.value_or(Rule::kMixedStick), best.has_value(), [&] {
      std::string text = describe(graph_, op) + " joins";
      for (const ValueId v : op.inputs) {
        text += fmt::format(" {} with {} in the stick", type(v).to_string(),
                            stick(v) < 0 ? "nothing" : fmt::format("dimension {}", stick(v)));
      }
      return text;
    });
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (best->to[i] != -2) need(static_cast<int>(i), best->to[i]);
    }
    layouts_.stick[op.outputs[0]] = chosen;
  }

  void plan_binary(const Op& op) {
    std::vector<int> candidates;
    for (const ValueId v : op.inputs) {
      if (type(v).rank() == 0) continue;
      const int shift = type(op.outputs[0]).rank() - type(v).rank();
      candidates.push_back(stick(v) < 0 ? -1 : stick(v) + shift);
    }
    if (candidates.empty()) candidates.push_back(-1);
    choose(op, candidates, [&](int candidate) { return fit_binary(op, candidate); });
  }

  void plan_concat(const Op& op) {
    std::vector<int> candidates;
    for (const ValueId v : op.inputs) candidates.push_back(stick(v));
    choose(op, candidates, [&](int candidate) { return fit_concat(op, candidate); });
  }

  void plan_reduce(const Op& op) {
    const int axis = static_cast<int>(op.int_attr("axis")), x = stick(op.inputs[0]);
    const bool keep = op.int_attr("keepdims") == 1;
    int& result = layouts_.stick[op.outputs[0]];
    if (x == axis) {
      result = keep ? axis : -1;
    } else {
      result = keep || x < axis ? x : x - 1;
    }
  }

  void plan_gather(const Op& op) {
    const Type& table = type(op.inputs[0]);
    require_rule(log_, Rule::kGatherOnStick, table.rank() > 1, [&] {
      return fmt::format("{} gathers single elements of {}", describe(graph_, op), table.to_string());
    });
    if (stick(op.inputs[0]) == 0) need_last(0);
    // A re-laid table has its last dimension in the stick, and so has the result.
    layouts_.stick[op.outputs[0]] = stick(op.inputs[0]) == 0 ? table.rank() - 1 : stick(op.inputs[0]);
  }

  void plan_reshape(const Op& op) {
    const ValueId x = op.inputs[0], y = op.outputs[0];
    const Type &from = type(x), &to = type(y);
    int& result = layouts_.stick[y];
    const std::vector<ReshapeGroup> groups = reshape_groups(from, to);
    for (const ReshapeGroup& group : groups) {
      require_rule(log_, Rule::kReshapeAcrossStick, group.from.size() == 1 || group.to.size() == 1, [&] {
        return fmt::format("{} turns {} into {}", describe(graph_, op), from.to_string(), to.to_string());
      });
    }
    if (is_thin(from, stick(x))) {
      result = -1;
      for (int d = 0; d < to.rank(); ++d) {
        if (to.extent(d) == 1) result = d;
      }
      return;
    }
    for (const ReshapeGroup& group : groups) {
      if (std::find(group.from.begin(), group.from.end(), stick(x)) == group.from.end()) continue;
      if (group.from.back() != stick(x)) need(0, group.from.back());
      result = group.to.back();
    }
  }

  const graph::Graph& graph_;
  RuleLog& log_;
  Layouts layouts_;
  int32_t index_ = 0;
};

}  // namespace

Layouts plan_sticks(const graph::Graph& graph, RuleLog& log) {
  return StickPlanner(graph, log).run();
}

}  // namespace spyre::compiler
