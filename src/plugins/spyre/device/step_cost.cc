#include "plugins/spyre/device/step_cost.h"

#include "base/error.h"

namespace spyre::device {

namespace {

double attention_ns(const compiler::AttentionShape& shape, const attention::StepTables& tables,
                    compiler::AttentionTimes& times) {
  if (tables.grid.has_value()) return times.attention_ns(shape, *tables.grid);
  double ns = 0;
  for (const attention::SequencePlan& s : tables.sequences) ns += times.attention_ns(shape, s.variant);
  return ns;
}

}  // namespace

double estimate_step_ns(const Program& program, const attention::StepTables* tables, compiler::AttentionTimes& times,
                        compiler::PlannedPrograms& planned) {
  const CardPlan& card = program.card;
  const compiler::PlannedProgram& own = planned.of(program);
  double total = own.ns - own.calls_ns;
  for (const DeviceOp& op : card.ops) {
    const bool attends = op.name == "attention";
    if (!attends && op.name != "kv_store") continue;
    const TensorSpec &rows = card.buffers[op.inputs[attends ? 0 : 1]].spec,
                     &state = card.buffers[op.inputs[attends ? 1 : 0]].spec;
    compiler::AttentionShape shape{.heads = rows.axes[1].card(),
                                   .kv_heads = state.axes[0].card(),
                                   .head_size = rows.axes[2].card(),
                                   .dtype = rows.dtype,
                                   .layout = times.layout()};
    if (tables != nullptr) shape.block_size = tables->block_size;
    if (!attends) {
      total += times.kv_store_ns(shape, rows.axes[0].card());
      continue;
    }
    SPYRE_CHECK(tables != nullptr, "attention without step tables");
    shape.soft_cap = program.graph.ops[op.graph_op].float_attr("softcap") > 0;
    total += attention_ns(shape, *tables, times);
  }
  return total;
}

}  // namespace spyre::device
