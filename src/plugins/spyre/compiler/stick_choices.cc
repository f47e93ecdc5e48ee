#include "plugins/spyre/compiler/stick_choices.h"

#include <algorithm>
#include <bit>
#include <string_view>

#include "graph/op_def.h"
#include "plugins/spyre/device/layout.h"

namespace spyre::compiler {

using device::Rule;
using graph::Graph;
using graph::Op;
using graph::OpFamily;
using graph::Type;

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

int StickSet::first() const {
  return std::countr_zero(bits_) - 1;
}

int given_stick(const Type& type) {
  return type.rank() - 1;
}

std::optional<Rule> restickify_obstacle(const Type& type, int from, int to) {
  if (from == to) return std::nullopt;
  if (is_thin(type, from) != is_thin(type, to)) return Rule::kRestickifySparse;
  if (!is_thin(type, to) && type.dtype == DType::kF32) return Rule::kRestickifyFp32;
  return std::nullopt;
}

int64_t restickify_cost(const Type& type, int to) {
  const int64_t e = device::stick_elements(type.dtype);
  if (to < 0) return type.elements() * e;
  return type.elements() / type.extent(to) * device::round_up(type.extent(to), e);
}

namespace {

using Choices = std::vector<StickChoice>;

StickSet thin_sticks(const Type& type) {
  StickSet set = StickSet::of(-1);
  for (int d = 0; d < type.rank(); ++d) {
    if (type.extent(d) == 1) set = set | StickSet::of(d);
  }
  return set;
}

bool whole_sticks(const Type& type, int stick) {
  return stick >= 0 && type.extent(stick) % device::stick_elements(type.dtype) == 0;
}

StickChoice last_of_all(const Graph& graph, const Op& op) {
  StickChoice choice{.result = graph.type(op.outputs[0]).rank() - 1};
  for (const graph::ValueId v : op.inputs) choice.operands.push_back(StickSet::of(graph.type(v).rank() - 1));
  return choice;
}

// A choice per stick of the result that all operands can follow: |of_operand| says where.
template <typename Follow>
Choices all_same(const Graph& graph, const Op& op, Follow&& of_operand) {
  const Type& out = graph.type(op.outputs[0]);
  Choices choices;
  for (int c = -1; c < out.rank(); ++c) {
    StickChoice choice{.result = c, .aligned = whole_sticks(out, c)};
    for (const graph::ValueId v : op.inputs) choice.operands.push_back(of_operand(graph.type(v), c));
    const bool possible =
        std::none_of(choice.operands.begin(), choice.operands.end(), [](StickSet s) { return s.empty(); });
    if (possible) choices.push_back(std::move(choice));
  }
  return choices;
}

// A choice per stick of the one operand that matters, the first; |to| gives that of the result (none = impossible).
template <typename Map>
Choices carried(const Graph& graph, const Op& op, Map&& to) {
  const Type &x = graph.type(op.inputs[0]), &out = graph.type(op.outputs[0]);
  Choices choices;
  for (int s = -1; s < x.rank(); ++s) {
    const std::optional<int> result = to(s);
    if (!result.has_value()) continue;
    StickChoice choice{.result = *result, .aligned = whole_sticks(out, *result) && whole_sticks(x, s)};
    choice.operands.assign(op.inputs.size(), StickSet::all());
    choice.operands[0] = StickSet::of(s);
    choices.push_back(std::move(choice));
  }
  return choices;
}

Choices of_pointwise(const Graph& graph, const Op& op) {
  const Type& out = graph.type(op.outputs[0]);
  return all_same(graph, op, [&](const Type& t, int c) {
    const int own = c < 0 ? -1 : c - (out.rank() - t.rank());
    // One element per stick of the result, or repeated along it: any thin layout will do.
    if (own < 0 || t.extent(own) == 1) return thin_sticks(t);
    return StickSet::of(own);
  });
}

Choices of_reduce(const Graph& graph, const Op& op) {
  const auto axis = static_cast<int>(op.int_attr("axis"));
  const bool keep = op.int_attr("keepdims") == 1;
  return carried(graph, op, [&](int s) -> std::optional<int> {
    if (s == axis) return keep ? axis : -1;
    return keep || s < axis ? s : s - 1;
  });
}

Choices of_reshape(const Graph& graph, const Op& op) {
  const Type &x = graph.type(op.inputs[0]), &y = graph.type(op.outputs[0]);
  Choices choices;
  int thin = -1;
  for (int d = 0; d < y.rank(); ++d) {
    if (y.extent(d) == 1) thin = d;
  }
  choices.push_back({.operands = {thin_sticks(x)}, .result = thin});
  for (const ReshapeGroup& group : reshape_groups(x, y)) {
    const int from = group.from.back(), to = group.to.back();
    choices.push_back(
        {.operands = {StickSet::of(from)}, .result = to, .aligned = whole_sticks(x, from) && whole_sticks(y, to)});
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const StickChoice& a, const StickChoice& b) { return a.result < b.result; });
  return choices;
}

Choices of_view(const Graph& graph, const Op& op) {
  const std::string_view name = op.name();
  const Type &x = graph.type(op.inputs[0]), &out = graph.type(op.outputs[0]);
  if (name == "reshape") return of_reshape(graph, op);
  if (name == "concat") return all_same(graph, op, [](const Type&, int c) { return StickSet::of(c); });
  if (name == "transpose") {
    const auto& perm = op.ints_attr("perm");
    return carried(graph, op, [&](int s) -> std::optional<int> {
      const auto found = std::find(perm.begin(), perm.end(), s);
      return found == perm.end() ? -1 : static_cast<int>(found - perm.begin());
    });
  }
  if (name == "broadcast") {
    const int shift = out.rank() - x.rank();
    return carried(graph, op, [&](int s) -> std::optional<int> {
      return x.rank() == 0 ? out.rank() - 1 : s < 0 ? -1 : s + shift;
    });
  }
  return carried(graph, op, [](int s) -> std::optional<int> { return s; });  // slice
}

}  // namespace

std::vector<StickChoice> stick_choices(const Graph& graph, const Op& op) {
  switch (op.def->family) {
    case OpFamily::kUnary:
      return carried(graph, op, [](int s) -> std::optional<int> { return s; });
    case OpFamily::kBinary:
      return of_pointwise(graph, op);
    case OpFamily::kReduce:
      return of_reduce(graph, op);
    case OpFamily::kView:
      return of_view(graph, op);
    case OpFamily::kGather:
      return carried(graph, op, [](int s) { return s == 0 ? std::nullopt : std::optional<int>(s); });
    default:
      break;
  }
  StickChoice choice = last_of_all(graph, op);
  if (op.name() == "linear") choice.operands[1] = StickSet::of(0);
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const Type& type = graph.type(op.inputs[i]);
    if (!type.is_tensor() || type.dtype == DType::kI32) choice.operands[i] = StickSet::all();
  }
  return {choice};
}

}  // namespace spyre::compiler
