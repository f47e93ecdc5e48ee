// Work and bundles of compiled programs, with figures by hand.
#include "plugins/spyre/device/op_work.h"

#include <gtest/gtest.h>

#include "graph/text.h"
#include "plugins/spyre/compiler/compiler.h"
#include "plugins/spyre/compiler/plan_lx.h"

namespace spyre::device {
namespace {

std::shared_ptr<const Program> compiled(const std::string& text) {
  static compiler::Compiler compiler({.features = CpuFeatures::detected()});
  return compiler.compile(graph::parse(text));
}

size_t index_of(const Program& program, std::string_view name) {
  for (size_t i = 0; i < program.card.ops.size(); ++i) {
    if (program.card.ops[i].name == name) return i;
  }
  ADD_FAILURE() << "no " << name;
  return 0;
}

OpWork work_named(const Program& program, std::string_view name) {
  return work_of(program.graph, program.card, index_of(program, name));
}

TEST(OpWork, AProductHasItsRowsAndItsSplitReduction) {
  const auto program = compiled(
      "graph g {\n input %x : f16[@512,4096]\n param %w : f16[4096,4096]\n %y = matmul(%x, %w)\n return %y\n}");
  const DeviceOp& op = program->card.ops[index_of(*program, "batchmatmul")];
  const OpWork work = work_named(*program, "batchmatmul");
  EXPECT_EQ(work.macs, int64_t{512} * 4096 * 4096);
  EXPECT_EQ(work.read_bytes, 2 * (512 * 4096 + 4096 * 4096));
  EXPECT_EQ(work.write_bytes, 2 * 512 * 4096);
  int64_t rows_split = 0, reduced_split = 0;
  for (size_t d = 0; d < op.splits.size(); ++d) {
    if (op.split_dims[d] == "0") rows_split = op.splits[d];
    if (op.split_dims[d] == "K") reduced_split = op.splits[d];
  }
  EXPECT_EQ(work.rows_per_core, 512 / rows_split);
  EXPECT_EQ(work.split_reduction, reduced_split > 1);
  // A weight that the planner may only divide by its one column of sticks has its K divided.
  const auto narrow =
      compiled("graph g {\n input %x : f16[@1,8192]\n param %w : f16[8192,64]\n %y = matmul(%x, %w)\n return %y\n}");
  const DeviceOp& thin = narrow->card.ops[index_of(*narrow, "batchmatmul")];
  EXPECT_EQ(work_named(*narrow, "batchmatmul").split_reduction, thin.splits[thin.reduced_dim] > 1);
}

TEST(OpWork, KindsComeFromTheOperators) {
  const auto program = compiled(
      "graph g {\n input %x : f16[@64,4,128]\n %s = reduce_sum(%x) {axis=2, keepdims=0}\n %t = reduce_sum(%x) {axis=1, "
      "keepdims=0}\n return %s, %t\n}");
  EXPECT_EQ(work_named(*program, "sum").kind, WorkKind::kReduction);
  EXPECT_EQ(work_named(*program, "sum").reduced_rows, 64 * 4);
  EXPECT_EQ(work_named(*program, "sumnonstick").kind, WorkKind::kOuterReduction);
}

// A core writes what it has of a column of sticks together, and more columns when it has them whole.
TEST(OpWork, ARunIsWhatACoreHasTogether) {
  const auto program = compiled(
      "graph g {\n input %x : f16[@512,4096]\n param %w : f16[4096,4096]\n %y = linear(%x, %w)\n return %y\n}");
  CardPlan plan = program->card;
  const size_t index = index_of(*program, "restickify");
  DeviceOp& op = plan.ops[index];
  // The moved weight holds dimension 0 in its stick: 64 columns of 4096 sticks.
  ASSERT_EQ(plan.buffers[op.outputs[0]].placement.stick_dim, 0);
  ASSERT_EQ(op.walks[1], (std::vector<int>{0, 1}));
  const auto run = [&](int64_t columns, int64_t sticks) {
    op.splits = {columns, sticks};
    return work_of(program->graph, plan, index).run_bytes;
  };
  EXPECT_EQ(run(1, 1), int64_t{4096} * 4096 * 2) << "all of it";
  EXPECT_EQ(run(32, 1), int64_t{2} * 4096 * 128) << "two columns";
  EXPECT_EQ(run(1, 32), 128 * 128) << "128 sticks of each column";
  EXPECT_EQ(run(4, 8), 512 * 128);
}

// Stages of one operator are one bundle; neighbours are two, unless what lies between them stays in the scratchpad.
TEST(Bundles, AreCutWhereAResultLeavesTheCard) {
  const auto program =
      compiled("graph g {\n input %x : f16[@64,4096]\n %a = silu(%x)\n %b = exp(%a)\n %c = softmax(%b)\n return %c\n}");
  const auto apart = bundles_of(program->graph, program->card, measured_costs());
  ASSERT_EQ(apart.size(), 3u);
  EXPECT_EQ(apart[2].end - apart[2].first, 5);
  CardPlan planned = program->card;
  compiler::plan_lx(planned);
  const auto together = bundles_of(program->graph, planned, measured_costs());
  ASSERT_EQ(planned.lx.resident, planned.lx.candidates);
  EXPECT_LT(together.size(), apart.size());
  EXPECT_LT(program_ns(program->graph, planned, measured_costs()),
            program_ns(program->graph, program->card, measured_costs()));
  // Every operation is in one bundle.
  int32_t next = 0;
  for (const Bundle& bundle : together) {
    EXPECT_EQ(bundle.first, next);
    next = bundle.end;
  }
  EXPECT_EQ(next, static_cast<int32_t>(planned.ops.size()));
}

// The original's claim, on compiled programs: a weight in the checkpoint's order is restickified before the product,
// and that takes about 3.5 times as long at 512 x 4096 x 4096.
TEST(Bundles, AWeightInTheOtherOrderTakesAboutThreeTimesAsLong) {
  const auto direct = compiled(
      "graph g {\n input %x : f16[@512,4096]\n param %w : f16[4096,4096]\n %y = matmul(%x, %w)\n return %y\n}");
  const auto other = compiled(
      "graph g {\n input %x : f16[@512,4096]\n param %w : f16[4096,4096]\n %y = linear(%x, %w)\n return %y\n}");
  EXPECT_EQ(work_named(*other, "restickify").kind, WorkKind::kRestickify);
  const double ratio = program_ns(other->graph, other->card, measured_costs()) /
                       program_ns(direct->graph, direct->card, measured_costs());
  EXPECT_NEAR(ratio, 3.5, 3.5 * 0.275);
}

}  // namespace
}  // namespace spyre::device
