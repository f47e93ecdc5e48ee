#include "plugins/spyre/compiler/view_placement.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "plugins/spyre/compiler/stick_choices.h"

namespace spyre::compiler {

using device::Axis;
using device::Placement;
using graph::Type;

namespace {

using AxisList = std::vector<Axis>;

// |whole| is units of |unit| one behind the other, each of the card width of |unit|.
bool is_regular(const Axis& whole, const Axis& unit) {
  if (!whole.padded() && !unit.padded()) return true;
  const std::vector<int64_t> all = whole.card_indices(), one = unit.card_indices();
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t size = one.size();
    if (all[i] != static_cast<int64_t>(i / size) * unit.card() + one[i % size]) return false;
  }
  return true;
}

// The extents of all but the last of |dims|; none when one of them is padded.
std::optional<std::vector<int64_t>> outer_extents(const AxisList& axes, const std::vector<int>& dims) {
  std::vector<int64_t> extents;
  for (size_t i = 0; i + 1 < dims.size(); ++i) {
    if (axes[dims[i]].padded()) return std::nullopt;
    extents.push_back(axes[dims[i]].logical());
  }
  return extents;
}

// Dimensions of extent 1 are taken out first and put in last; between, groups are split or merged from the back.
std::optional<Placement> reshape_view(const Type& x, const Type& y, const AxisList& from, const AxisList& to, int stick,
                                      const Placement& base) {
  Placement p = base;
  for (int d = x.rank() - 1; d >= 0; --d) {
    if (x.extent(d) == 1) p = p.dropped(d);
  }
  const std::vector<ReshapeGroup> groups = reshape_groups(x, y);
  int end = p.rank();
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
    const int first = end - static_cast<int>(group->from.size());
    end = first;
    const Axis &inner_x = from[group->from.back()], &inner_y = to[group->to.back()];
    if (group->from.size() == 1 && group->to.size() == 1) {
      if (!(inner_x == inner_y) && inner_x.card_indices() != inner_y.card_indices()) return std::nullopt;
    } else if (group->from.size() == 1) {
      const auto outer = outer_extents(to, group->to);
      if (!outer.has_value() || !is_regular(inner_x, inner_y)) return std::nullopt;
      p = p.split(first, *outer, inner_y.card());
    } else {
      const auto outer = outer_extents(from, group->from);
      if (!outer.has_value() || !is_regular(inner_y, inner_x)) return std::nullopt;
      const std::optional<Placement> merged = p.merged(first, *outer, inner_x.card());
      if (!merged.has_value()) return std::nullopt;
      p = *merged;
    }
  }
  for (int d = 0; d < y.rank(); ++d) {
    if (y.extent(d) == 1) p = p.inserted(d);
  }
  SPYRE_CHECK(p.rank() == y.rank() && (p.stick_dim == stick || is_thin(y, stick)), "stick {} became {}", stick,
              p.stick_dim);
  p.stick_dim = stick;
  return p;
}

}  // namespace

std::optional<Placement> part_placement(const Axis& whole, const Axis& part, int axis, int64_t start,
                                        const Placement& of_whole) {
  const int64_t first = whole.to_card(start), after = start + part.logical();
  const int64_t end = after == whole.logical() ? whole.card() : whole.to_card(after);
  if (first + part.card() > end) return std::nullopt;  // its padding would be what comes after it
  if (axis == of_whole.stick_dim && first % of_whole.stick_elements != 0) return std::nullopt;
  if (!whole.padded() && !part.padded()) return of_whole.sliced(axis, start);
  const std::vector<int64_t> all = whole.card_indices(), own = part.card_indices();
  for (size_t i = 0; i < own.size(); ++i) {
    if (all[start + i] - first != own[i]) return std::nullopt;
  }
  return of_whole.sliced(axis, first);
}

std::optional<Placement> inverse_placement(const graph::Graph& graph, const graph::Op& op, const Axes& axes, int stick,
                                           const Placement& of_result) {
  const std::string_view name = op.name();
  const graph::ValueId x = op.inputs[0], y = op.outputs[0];
  if (name == "reshape") return reshape_view(graph.type(y), graph.type(x), axes[y], axes[x], stick, of_result);
  if (name != "transpose") return std::nullopt;
  const auto& perm = op.ints_attr("perm");
  std::vector<int64_t> inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[perm[i]] = static_cast<int64_t>(i);
  return of_result.transposed(inverse);
}

std::optional<Placement> view_placement(const graph::Graph& graph, const graph::Op& op, const Axes& axes, int stick,
                                        const Placement& base) {
  const std::string_view name = op.name();
  const graph::ValueId x = op.inputs[0], y = op.outputs[0];
  if (name == "slice") {
    const auto axis = static_cast<int>(op.int_attr("axis"));
    return part_placement(axes[x][axis], axes[y][axis], axis, op.int_attr("start"), base);
  }
  if (name == "transpose") return base.transposed(op.ints_attr("perm"));
  if (name == "reshape") return reshape_view(graph.type(x), graph.type(y), axes[x], axes[y], stick, base);
  return std::nullopt;
}

}  // namespace spyre::compiler
