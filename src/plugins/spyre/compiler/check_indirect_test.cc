#include "plugins/spyre/compiler/check_indirect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "plugins/spyre/testing/planned_graph.h"

namespace spyre::compiler {
namespace {

using testing::PlannedGraph;

const char* const kGather = "param %t : f16[9,64]\ninput %i : i32[4]\n%y = gather_rows(%t, %i)\nreturn %y";

TEST(CheckIndirect, FindsWhatHasAnIndex) {
  PlannedGraph g(kGather, "insert-restickify");
  EXPECT_EQ(check_indirect(g.state), 1);
  PlannedGraph none("input %x : f16[4,64]\n%y = neg(%x)\nreturn %y", "insert-restickify");
  EXPECT_EQ(check_indirect(none.state), 0);
}

TEST(CheckIndirect, AnIndexFromAnotherPlaceIsRefused) {
  PlannedGraph g(kGather, "insert-restickify");
  g.state.plan.buffers[g.plan().ops[0].inputs[1]].view = true;  // of a larger index, at an offset
  try {
    check_indirect(g.state);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::StartsWith("L-08"));
  }
}

TEST(CheckIndirect, ATableWithItsRowsInTheStickIsRefused) {
  PlannedGraph g(kGather, "insert-restickify");
  g.state.plan.buffers[g.plan().ops[0].inputs[0]].placement.stick_dim = 0;
  try {
    check_indirect(g.state);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::StartsWith("L-09"));
  }
}

}  // namespace
}  // namespace spyre::compiler
