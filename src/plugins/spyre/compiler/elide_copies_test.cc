#include "plugins/spyre/compiler/elide_copies.h"

#include <gtest/gtest.h>

#include "plugins/spyre/testing/planned_graph.h"

namespace spyre::compiler {
namespace {

using Names = std::vector<std::string>;
using testing::PlannedGraph;

Names names(const std::string& text) {
  return PlannedGraph(text, "elide-copies").op_names();
}

TEST(ElideCopies, AViewThatIsAnOutputIsMadeThere) {
  const PlannedGraph g(R"(input %x : f16[8,128]
    %n = neg(%x)
    %y = reshape(%n) {shape=[8,2,64]}
    return %y)",
                       "elide-copies");
  EXPECT_EQ(g.op_names(), Names{"neg"});
  const device::CardBuffer& made = g.buffer("n");
  ASSERT_TRUE(made.view);
  EXPECT_EQ(g.plan().buffers[made.base].home, device::BufferHome::kOutput);
  // The output lies as [2 halves][1 stick][8 rows][64]: what is one step from stick to stick of n is a half of the
  // output.
  const device::Placement& out = g.plan().buffers[made.base].placement;
  EXPECT_EQ(made.placement.strides, (std::vector<int64_t>{out.strides[0], out.strides[1]}));
  EXPECT_EQ(made.placement.stick_dim, 1);
}

TEST(ElideCopies, ATransposedOutputIsMadeThere) {
  EXPECT_EQ(names("input %x : f16[8,128]\n%n = neg(%x)\n%y = transpose(%n) {perm=[1,0]}\nreturn %y"), Names{"neg"});
}

TEST(ElideCopies, PartsAreMadeInTheirPlace) {
  const PlannedGraph g(R"(input %x : f16[8,64]
    %a = neg(%x)
    %b = exp(%x)
    %y = concat(%a, %b) {axis=1}
    return %y)",
                       "elide-copies");
  EXPECT_EQ(g.op_names(), (Names{"neg", "exp"}));
  EXPECT_EQ(g.buffer("a").placement.offset, 0);
  EXPECT_EQ(g.buffer("b").placement.offset, 8 * 64);
  EXPECT_EQ(g.buffer("a").base, g.buffer("b").base);
}

TEST(ElideCopies, WhatMustBeCopiedIs) {
  // A given value, a part of a value, a value that is an output itself, the same value twice.
  EXPECT_EQ(names("input %x : f16[8,128]\nreturn %x"), Names{"identity"});
  EXPECT_EQ(names("input %x : f16[8,128]\n%n = neg(%x)\n%y = slice(%n) {axis=1, start=64, size=64}\nreturn %y"),
            (Names{"neg", "identity"}));
  EXPECT_EQ(names("input %x : f16[8,64]\n%n = neg(%x)\n%y = concat(%n, %x) {axis=1}\nreturn %y"),
            (Names{"neg", "concat"}));
  EXPECT_EQ(names("input %x : f16[8,64]\n%n = neg(%x)\n%y = concat(%n, %n) {axis=1}\nreturn %y"),
            (Names{"neg", "concat"}));
  EXPECT_EQ(names("input %x : f16[8,64]\n%n = neg(%x)\n%y = transpose(%n) {perm=[1,0]}\nreturn %y, %n"),
            (Names{"neg", "identity"}));
  // Two views of one value: the second would have to be turned round as well.
  EXPECT_EQ(names(R"(input %x : f16[8,128]
    %n = neg(%x)
    %y = transpose(%n) {perm=[1,0]}
    %h = slice(%n) {axis=1, start=64, size=64}
    %z = exp(%h)
    return %y, %z)"),
            (Names{"neg", "identity", "exp"}));
}

}  // namespace
}  // namespace spyre::compiler
