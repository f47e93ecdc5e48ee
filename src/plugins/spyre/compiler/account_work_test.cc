#include "plugins/spyre/compiler/account_work.h"

#include <gtest/gtest.h>

#include "plugins/spyre/device/op_work.h"
#include "plugins/spyre/testing/planned_graph.h"

namespace spyre::compiler {
namespace {

using testing::PlannedGraph;

TEST(AccountWork, WorkIsCountedOnCardExtents) {
  const PlannedGraph g("input %x : f16[4,100]\nparam %w : f16[100,10]\n%y = matmul(%x, %w)\nreturn %y");
  EXPECT_EQ(g.plan().ops[0].macs, 4 * 128 * 64);
  EXPECT_EQ(g.plan().ops[0].read_bytes, (4 * 128 + 128 * 64) * 2);
  EXPECT_EQ(g.plan().ops[0].write_bytes, 4 * 64 * 2);
}

TEST(AccountWork, ASequenceReadsOnceAndWritesOnce) {
  const PlannedGraph g("input %x : f16[8,128]\n%y = softmax(%x)\nreturn %y");
  ASSERT_EQ(g.plan().ops.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(g.plan().ops[i].read_bytes, i == 0 ? 8 * 128 * 2 : 0);
    EXPECT_EQ(g.plan().ops[i].write_bytes, i == 4 ? 8 * 128 * 2 : 0);
    EXPECT_EQ(device::work_of(g.graph, g.plan(), i).elements, 8 * 128);
  }
}

TEST(AccountWork, OfATableOnlyTheRowsThatAreMet) {
  const PlannedGraph g("param %t : f16[1000,64]\ninput %i : i32[32]\n%y = gather_rows(%t, %i)\nreturn %y");
  EXPECT_EQ(g.plan().ops[0].read_bytes, 32 * 64 * 2 + 128);
}

TEST(AccountWork, AReductionWorksOnWhatItReads) {
  const PlannedGraph g("input %x : f16[8,640]\n%y = reduce_sum(%x) {axis=1}\nreturn %y");
  EXPECT_EQ(device::work_of(g.graph, g.plan(), 0).elements, 8 * 640);
  EXPECT_EQ(g.plan().ops[0].write_bytes, 8 * 128) << "one element per stick";
}

TEST(AccountWork, TimesAddUp) {
  const PlannedGraph g("input %x : f16[64,64]\nparam %w : f16[128,64]\n%y = linear(%x, %w)\n%z = neg(%y)\nreturn %z");
  double sum = 0;
  for (const device::DeviceOp& op : g.plan().ops) {
    EXPECT_GT(op.estimated_ns, 0) << op.name;
    sum += op.estimated_ns;
  }
  EXPECT_EQ(g.plan().ops.size(), 3u);
  EXPECT_DOUBLE_EQ(g.plan().estimated_ns, sum + device::measured_costs().launch_ns.value);
}

// A softmax is one bundle: what its stages compute is hidden behind 512 KiB that are read and 512 KiB that are written.
TEST(AccountWork, StagesOfOneOperatorAreOneBundle) {
  const PlannedGraph g("input %x : f16[64,4096]\n%y = softmax(%x)\nreturn %y");
  EXPECT_NEAR(g.plan().estimated_ns, 1048576 / 150.0 + 0.00574 * 524288, 1);
}

}  // namespace
}  // namespace spyre::compiler
