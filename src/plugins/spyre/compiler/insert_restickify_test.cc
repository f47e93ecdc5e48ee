#include "plugins/spyre/compiler/insert_restickify.h"

#include <gtest/gtest.h>

#include "plugins/spyre/testing/planned_graph.h"

namespace spyre::compiler {
namespace {

using Names = std::vector<std::string>;
using testing::PlannedGraph;

TEST(InsertRestickify, OnceForAllReadersOfALayoutBeforeTheFirst) {
  const PlannedGraph g(R"(input %x : f16[64,128]
    param %a : f16[64,64]
    param %b : f16[64,64]
    %t = transpose(%x) {perm=[1,0]}
    %n = neg(%x)
    %p = matmul(%t, %a)
    %q = matmul(%t, %b)
    return %n, %p, %q)",
                       "insert-restickify");
  EXPECT_EQ(g.op_names(), (Names{"neg", "restickify", "batchmatmul", "batchmatmul"}));
  EXPECT_EQ(g.plan().restickified_bytes, 128 * 64 * 2);
  const device::DeviceOp& moved = g.plan().ops[1];
  EXPECT_EQ(g.plan().ops[2].inputs[0], moved.outputs[0]);
  EXPECT_EQ(g.plan().ops[3].inputs[0], moved.outputs[0]);
  // An E x E tile transpose: both dimensions count sticks.
  EXPECT_EQ(moved.extents, (std::vector<int64_t>{2, 1}));
}

TEST(InsertRestickify, AViewOfWhatIsMovedWaitsForIt) {
  const PlannedGraph g(R"(input %x : f16[128,64]
    param %w : f16[4,128]
    %t = transpose(%x) {perm=[1,0]}
    %y = linear(%w, %t)
    return %y)",
                       "insert-restickify");
  EXPECT_EQ(g.op_names(), (Names{"batchmatmul"})) << "the transposed weight lies as a linear wants it";
}

TEST(InsertRestickify, NothingToDo) {
  const PlannedGraph g("input %x : f16[64,128]\n%y = neg(%x)\nreturn %y", "insert-restickify");
  EXPECT_EQ(g.op_names(), Names{"neg"});
  EXPECT_EQ(g.plan().restickified_bytes, 0);
}

}  // namespace
}  // namespace spyre::compiler
