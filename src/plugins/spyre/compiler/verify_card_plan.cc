#include "plugins/spyre/compiler/verify_card_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "plugins/spyre/compiler/plan_pool.h"
#include "plugins/spyre/compiler/stick_choices.h"
#include "plugins/spyre/device/core_map.h"

namespace spyre::compiler {

using device::BufferHome;
using device::CardBuffer;
using device::CardPlan;
using device::DeviceOp;
using device::Rule;

namespace {

constexpr int64_t kSegmentBytes = int64_t{16} << 30;

class PlanVerifier {
 public:
  PlanVerifier(CardState& state, std::string_view after)
      : state_(state), plan_(state.plan), after_(after), written_(plan_.buffers.size(), false) {}

  void run() {
    for (size_t b = 0; b < plan_.buffers.size(); ++b) verify_buffer(static_cast<int32_t>(b));
    for (const DeviceOp& op : plan_.ops) verify_op(op);
    if (plan_.pool_bytes > 0) verify_pool();
  }

 private:
  template <typename Detail>
  void invariant(bool holds, Detail&& detail) const {
    if (!holds) throw_error(ErrorCode::kInternal, "after {}: {}", after_, detail());
  }

  std::string name(int32_t b) const { return "%" + state_.graph.value(plan_.buffers[b].value).name; }
  std::string name(const DeviceOp& op) const {
    return op.graph_op < 0 ? op.name : op.name + " of " + describe(state_.graph, state_.graph.ops[op.graph_op]);
  }

  // Elements from the first of |b|'s memory to the end of the stick that holds its last one.
  int64_t reach(const CardBuffer& b) const {
    int64_t last = b.placement.offset + b.placement.stick_elements;
    for (size_t d = 0; d < b.spec.axes.size(); ++d) {
      const int64_t step = b.placement.step(static_cast<int>(d), b.spec.axes[d].card() - 1);
      last += static_cast<int>(d) == b.placement.stick_dim
                  ? step / b.placement.stick_elements * b.placement.stick_elements
                  : step;
    }
    return last;
  }

  void verify_buffer(int32_t index) {
    const CardBuffer& b = plan_.buffers[index];
    const CardBuffer& root = b.view ? plan_.buffers[b.base] : b;
    invariant(!root.view, [&] { return name(index) + " is a view of a view"; });
    invariant(reach(b) <= root.spec.layout.device_elements(), [&] {
      return fmt::format("{} reaches element {} of {}", name(index), reach(b), root.spec.layout.device_elements());
    });
    bool whole_sticks = b.placement.offset % b.placement.stick_elements == 0;
    for (const int64_t stride : b.placement.strides) whole_sticks &= stride % b.placement.stick_elements == 0;
    require_rule(state_.log, Rule::kAlignment, whole_sticks, [&] {
      return fmt::format("{} lies at element {} of {}", name(index), b.placement.offset, name(b.view ? b.base : index));
    });
    if (b.view) return;
    require_rule(state_.log, Rule::kTensorSegment, b.spec.card_bytes() <= kSegmentBytes,
                 [&] { return fmt::format("{} takes {} bytes on the card", name(index), b.spec.card_bytes()); });
    written_[index] = b.home != BufferHome::kPool && b.home != BufferHome::kOutput;
    if (b.pool_offset < 0) return;
    require_rule(state_.log, Rule::kAlignment, b.pool_offset % device::kStickBytes == 0,
                 [&] { return fmt::format("{} lies at byte {} of the pool", name(index), b.pool_offset); });
    invariant(b.pool_offset + b.spec.card_bytes() <= plan_.pool_bytes,
              [&] { return name(index) + " ends behind the pool"; });
  }

  void verify_op(const DeviceOp& op) {
    for (const int32_t b : op.inputs) {
      if (b < 0) continue;
      const int32_t root = plan_.buffers[b].view ? plan_.buffers[b].base : b;
      const bool later = plan_.buffers[root].relaid_from >= 0 && after_ == "lower-operators";
      invariant(written_[root] || later, [&] { return name(op) + " reads " + name(b) + ", which nothing wrote"; });
    }
    for (const int32_t b : op.outputs) written_[plan_.buffers[b].view ? plan_.buffers[b].base : b] = true;
    verify_division(op);
    if (op.graph_op >= 0 && op.name != "restickify" && !op.outputs.empty()) verify_sticks(op);
  }

  void verify_division(const DeviceOp& op) {
    invariant(op.splits.size() == op.extents.size() && op.split_dims.size() == op.extents.size(),
              [&] { return name(op) + " has more splits than dimensions"; });
    const bool exact = std::equal(op.extents.begin(), op.extents.end(), op.splits.begin(),
                                  [](int64_t extent, int64_t split) { return split > 0 && extent % split == 0; });
    require_rule(state_.log, Rule::kExactSplit, exact,
                 [&] { return fmt::format("{} cuts a dimension into parts that are not equal", name(op)); });
    const int64_t cores = device::core_count(op.splits);
    require_rule(state_.log, Rule::kCores, cores <= device::kCores,
                 [&] { return fmt::format("{} is divided over {} cores", name(op), cores); });
    // The parts of a sum are on neighbours when what is reduced changes fastest: when nothing before it is split.
    const bool neighbours = op.reduced_dim < 0 || op.splits[op.reduced_dim] == 1 ||
                            device::core_count(std::span(op.splits).first(op.reduced_dim)) == 1;
    require_rule(state_.log, Rule::kPartialSums, neighbours,
                 [&] { return fmt::format("{} spreads the parts of a sum over distant cores", name(op)); });
  }

  // Every operand lies in a layout that the operator takes for the layout of its result.
  void verify_sticks(const DeviceOp& op) {
    const graph::Op& from = state_.graph.ops[op.graph_op];
    if (from.outputs.empty() || !state_.graph.type(from.outputs[0]).is_tensor()) return;
    const int result = state_.layouts.stick[from.outputs[0]];
    bool fits = false;
    for (const StickChoice& choice : stick_choices(state_.graph, from)) {
      if (choice.result != result) continue;
      bool all = true;
      for (size_t i = 0; i < op.inputs.size() && all; ++i) {
        const int32_t b = op.inputs[i];
        all = b < 0 || !state_.graph.type(from.inputs[i]).is_tensor() ||
              choice.operands[i].contains(plan_.buffers[b].placement.stick_dim);
      }
      fits |= all;
    }
    require_rule(state_.log, Rule::kOperandStick, fits, [&] {
      std::string text = name(op) + " reads";
      for (const int32_t b : op.inputs) {
        if (b >= 0)
          text += fmt::format(" {} with dimension {} in the stick", name(b), plan_.buffers[b].placement.stick_dim);
      }
      return text;
    });
  }

  void verify_pool() {
    const std::vector<LiveRange> ranges = live_ranges(plan_);
    std::vector<int32_t> placed;
    for (int32_t b = 0; b < static_cast<int32_t>(ranges.size()); ++b) {
      if (plan_.buffers[b].pool_offset >= 0 && !plan_.buffers[b].view) placed.push_back(b);
    }
    std::sort(placed.begin(), placed.end(),
              [&](int32_t a, int32_t b) { return plan_.buffers[a].pool_offset < plan_.buffers[b].pool_offset; });
    for (size_t i = 0; i < placed.size(); ++i) {
      const CardBuffer& a = plan_.buffers[placed[i]];
      const int64_t end = a.pool_offset + a.spec.card_bytes();
      for (size_t j = i + 1; j < placed.size() && plan_.buffers[placed[j]].pool_offset < end; ++j) {
        const LiveRange &one = ranges[placed[i]], &other = ranges[placed[j]];
        invariant(one.last < other.first || other.last < one.first,
                  [&] { return name(placed[i]) + " and " + name(placed[j]) + " share memory while both are live"; });
      }
    }
  }

  CardState& state_;
  const CardPlan& plan_;
  const std::string_view after_;
  std::vector<bool> written_;
};

}  // namespace

void verify_card_plan(CardState& state, std::string_view after) {
  if (!state.plan.buffers.empty()) PlanVerifier(state, after).run();
}

}  // namespace spyre::compiler
