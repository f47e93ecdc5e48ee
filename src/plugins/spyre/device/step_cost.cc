#include "plugins/spyre/device/step_cost.h"

#include "base/error.h"

namespace spyre::device {

double estimate_step_ns(const Program& program, const attention::StepTables* tables) {
  const CardPlan& card = program.card;
  double total = card.estimated_ns;
  for (const DeviceOp& op : card.ops) {
    if (op.name != "attention") continue;
    SPYRE_CHECK(tables != nullptr, "attention without step tables");
    const TensorSpec &q = card.buffers[op.inputs[0]].spec, &state = card.buffers[op.inputs[1]].spec;
    const int64_t heads = q.axes[1].card(), kv_heads = state.axes[0].card(), head_size = q.axes[2].card();
    const auto bytes = static_cast<int64_t>(size_of(q.dtype));
    if (tables->grid.has_value()) {
      const attention::Variant& grid = *tables->grid;
      total += estimate_ns(measured_costs(), batched_attention_work(grid.sequences, heads, kv_heads, head_size,
                                                                    grid.blocks * tables->block_size, bytes));
      continue;
    }
    for (const attention::SequencePlan& s : tables->sequences) {
      total += estimate_ns(measured_costs(), attention_work(s.variant.query, heads, kv_heads, head_size,
                                                            s.variant.blocks * tables->block_size, bytes));
    }
  }
  return total;
}

}  // namespace spyre::device
