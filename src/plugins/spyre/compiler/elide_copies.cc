#include "plugins/spyre/compiler/elide_copies.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "graph/op_def.h"
#include "plugins/spyre/compiler/view_placement.h"

namespace spyre::compiler {

using device::BufferHome;
using device::CardBuffer;
using device::CardPlan;
using device::DeviceOp;
using device::Placement;

namespace {

class Elision {
 public:
  explicit Elision(CardState& state) : state_(state), plan_(state.plan), views_(plan_.buffers.size(), 0) {
    for (const CardBuffer& b : plan_.buffers) {
      if (b.view) ++views_[b.base];
    }
  }

  int64_t run() {
    const size_t before = plan_.ops.size();
    std::erase_if(plan_.ops, [this](const DeviceOp& op) {
      if (op.name == "identity") return elide_copy(op);
      return op.name == "concat" && elide_concat(op);
    });
    return static_cast<int64_t>(before - plan_.ops.size());
  }

 private:
  // An operation of this program writes it into memory of its own, and nothing else names that memory.
  bool can_move(int32_t b) const {
    const CardBuffer& buffer = plan_.buffers[b];
    return buffer.home == BufferHome::kPool && !buffer.view && views_[b] == 0;
  }

  void move(int32_t b, int32_t into, const Placement& placement) {
    CardBuffer& buffer = plan_.buffers[b];
    buffer.view = true;
    buffer.home = BufferHome::kNone;
    buffer.base = into;
    buffer.placement = placement;
    ++views_[into];
  }

  // identity(made) -> result, a transpose or a regrouping: |made| becomes a view of the result.
  bool elide_copy(const DeviceOp& op) {
    const int32_t made = op.inputs[0], result = op.outputs[0];
    if (op.graph_op < 0 || plan_.buffers[result].view || !can_move(made)) return false;
    const std::optional<Placement> placement =
        inverse_placement(state_.graph, state_.graph.ops[op.graph_op], state_.axes,
                          plan_.buffers[made].placement.stick_dim, plan_.buffers[result].placement);
    if (!placement.has_value()) return false;
    move(made, result, *placement);
    return true;
  }

  // concat(parts) -> whole: the parts become views of the whole.
  bool elide_concat(const DeviceOp& op) {
    const int32_t whole = op.outputs[0];
    if (plan_.buffers[whole].view) return false;
    const auto axis = static_cast<int>(state_.graph.ops[op.graph_op].int_attr("axis"));
    const device::Axis& all = plan_.buffers[whole].spec.axes[axis];
    std::vector<Placement> placements;
    int64_t start = 0;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const int32_t part = op.inputs[i];
      const bool twice = std::count(op.inputs.begin(), op.inputs.end(), part) > 1;
      if (twice || !can_move(part)) return false;
      const std::optional<Placement> placement =
          part_placement(all, plan_.buffers[part].spec.axes[axis], axis, start, plan_.buffers[whole].placement);
      if (!placement.has_value() || placement->stick_dim != plan_.buffers[part].placement.stick_dim) return false;
      placements.push_back(*placement);
      start += plan_.buffers[part].spec.axes[axis].logical();
    }
    for (size_t i = 0; i < placements.size(); ++i) move(op.inputs[i], whole, placements[i]);
    return true;
  }

  CardState& state_;
  CardPlan& plan_;
  std::vector<int> views_;  // of each buffer
};

}  // namespace

int64_t elide_copies(CardState& state) {
  return Elision(state).run();
}

}  // namespace spyre::compiler
