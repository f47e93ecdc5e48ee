#include "plugins/spyre/compiler/reduce_spans.h"

#include <gtest/gtest.h>

#include "plugins/spyre/testing/planned_graph.h"

namespace spyre::compiler {
namespace {

using testing::PlannedGraph;

// [rows, columns] f16: columns of 64 lie one behind the other, each with all rows.
PlannedGraph negated(const std::string& type) {
  return PlannedGraph("input %x : " + type + "\n%y = neg(%x)\nreturn %y", "reduce-spans");
}

TEST(ReduceSpans, ASpanIsARangeOfAddresses) {
  const PlannedGraph g = negated("f16[1024,256]");
  device::DeviceOp op = g.plan().ops[0];
  EXPECT_EQ(span_bytes(g.plan(), op, 0), 1024 * 256 * 2);
  op.splits = {1, 2};  // two of four columns
  EXPECT_EQ(span_bytes(g.plan(), op, 0), 1024 * 128 * 2);
  op.splits = {2, 1};  // half of the rows, of every column: the first half of the last one ends the range
  EXPECT_EQ(span_bytes(g.plan(), op, 0), (3 * 1024 + 512) * 128);
}

TEST(ReduceSpans, NothingIsCutWithinTheLimit) {
  EXPECT_EQ(negated("f16[1048576,64]").plan().ops[0].splits, (std::vector<int64_t>{1, 1}));
}

TEST(ReduceSpans, TheDimensionThatHelpsMostIsCut) {
  // 8 columns of 128 MiB: 4 cuts leave 2 of them, 256 MiB, which is a hair above 255.996 MiB; 8 leave one.
  EXPECT_EQ(negated("f16[1048576,512]").plan().ops[0].splits, (std::vector<int64_t>{1, 8}));
  // One column of 512 MiB: only the rows can be cut.
  EXPECT_EQ(negated("f16[4194304,64]").plan().ops[0].splits, (std::vector<int64_t>{4, 1}));
}

TEST(ReduceSpans, AReducedDimensionIsCutLast) {
  // A weight of 128 columns of 4 MiB: the 128 generated ones are cut, not the 512 reduced sticks.
  const PlannedGraph g("input %x : f16[2,32768]\nparam %w : f16[32768,8192]\n%y = matmul(%x, %w)\nreturn %y",
                       "reduce-spans");
  EXPECT_EQ(g.plan().ops[0].splits, (std::vector<int64_t>{1, 1, 4}));
}

TEST(ReduceSpans, ATableIsCutByItsColumns) {
  const PlannedGraph g("param %t : f16[128256,4096]\ninput %i : i32[@512]\n%y = gather_rows(%t, %i)\nreturn %y",
                       "reduce-spans");
  EXPECT_EQ(g.plan().ops[0].splits, (std::vector<int64_t>{1, 4}));
}

}  // namespace
}  // namespace spyre::compiler
