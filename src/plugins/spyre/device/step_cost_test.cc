#include "plugins/spyre/device/step_cost.h"

#include <gtest/gtest.h>

#include <vector>

#include "graph/text.h"
#include "plugins/spyre/compiler/compiler.h"
#include "plugins/spyre/compiler/plan_lx.h"
#include "plugins/spyre/device/op_work.h"

namespace spyre::device {
namespace {

using attention::KvLayout;

std::shared_ptr<const Program> block() {
  compiler::Compiler compiler({.features = CpuFeatures::detected()});
  return compiler.compile(graph::parse(R"(graph g {
    input %q : f16[@64,8,64]
    input %k : f16[@64,2,64]
    input %v : f16[@64,2,64]
    input %slots : i32[@64]
    input %batch : batch
    state %kv : kv f16[2,64]
    %kv1 = kv_store(%kv, %k, %v, %slots)
    %a = attention(%q, %kv1, %batch) {scale=0.125, softcap=20}
    return %a
  })"));
}

// The calls' own estimates make way for the programs of the step: one for each sequence, and the store.
TEST(StepCost, AttentionIsAddedPerSequence) {
  const auto program = block();
  compiler::PlannedPrograms planned;
  double rest = program->card.estimated_ns;  // nothing else is in it
  for (const DeviceOp& op : program->card.ops) rest -= op.estimated_ns;
  ASSERT_NEAR(rest, 0, 1e-6);
  std::vector<attention::SequencePlan> sequences(2);
  sequences[0].variant = {.query = 1, .blocks = 16};
  sequences[1].variant = {.query = 32, .blocks = 4};
  attention::StepTables tables;
  tables.block_size = 128;
  for (const KvLayout layout : {KvLayout::kTokenMajor, KvLayout::kHeadMajor}) {
    compiler::AttentionTimes times(layout);
    const compiler::AttentionShape shape{
        .heads = 8, .kv_heads = 2, .head_size = 64, .block_size = 128, .layout = layout, .soft_cap = true};
    const auto one = [&](const attention::Variant& variant) {
      return compiler::program_ns(compiler::attention_program(shape, variant), measured_costs());
    };
    compiler::AttentionShape uncapped = shape;
    uncapped.soft_cap = false;
    const double store = compiler::program_ns(compiler::kv_store_program(uncapped, 64), measured_costs());
    tables.sequences = {};
    const double none = estimate_step_ns(*program, &tables, times, planned);
    EXPECT_NEAR(none, rest + store, 1e-6);
    tables.sequences = std::span(sequences).first(1);
    EXPECT_NEAR(estimate_step_ns(*program, &tables, times, planned), none + one({.query = 1, .blocks = 16}), 1e-6);
    tables.sequences = sequences;
    EXPECT_NEAR(estimate_step_ns(*program, &tables, times, planned),
                none + one({.query = 1, .blocks = 16}) + one({.query = 32, .blocks = 4}), 1e-6);
  }
  // One program over the grid.
  compiler::AttentionTimes times;
  tables.grid = attention::Variant{.query = 1, .blocks = 16, .sequences = 64};
  const compiler::AttentionShape shape{.heads = 8, .kv_heads = 2, .head_size = 64, .block_size = 128, .soft_cap = true};
  const double grid = compiler::program_ns(compiler::attention_program(shape, *tables.grid), measured_costs());
  tables.sequences = {};
  const double with_grid = estimate_step_ns(*program, &tables, times, planned);
  tables.grid.reset();
  EXPECT_NEAR(with_grid, estimate_step_ns(*program, &tables, times, planned) + grid, 1e-6);
}

// What stays in the scratchpad between two operations is free, in the estimate of a step as in reports.
TEST(StepCost, CountsTheScratchpad) {
  compiler::Compiler compiler({.features = CpuFeatures::detected()});
  const auto program = compiler.compile(
      graph::parse("graph g {\n input %x : f16[@64,4096]\n %a = silu(%x)\n %b = exp(%a)\n return %b\n}"));
  compiler::AttentionTimes times;
  compiler::PlannedPrograms planned;
  const double step = estimate_step_ns(*program, nullptr, times, planned);
  CardPlan plan = program->card;
  compiler::plan_lx(plan);
  EXPECT_DOUBLE_EQ(step, program_ns(program->graph, plan, measured_costs()));
  EXPECT_LT(step, program->card.estimated_ns);
  EXPECT_EQ(planned.of(*program).calls_ns, 0);
}

}  // namespace
}  // namespace spyre::device
