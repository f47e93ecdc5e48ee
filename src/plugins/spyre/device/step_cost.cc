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
    for (const attention::SequencePlan& s : tables->sequences) {
      total += estimate_ns(measured_costs(), attention_work(s.variant.query, q.axes[1].card(), state.axes[0].card(),
                                                            q.axes[2].card(), s.variant.blocks * tables->block_size,
                                                            static_cast<int64_t>(size_of(q.dtype))));
    }
  }
  return total;
}

}  // namespace spyre::device
