#include "plugins/spyre/compiler/stick_choices.h"

#include <gtest/gtest.h>

#include "graph/text.h"

namespace spyre::compiler {
namespace {

// "1,1->1" per choice of the last operator: the sticks of its operands and of its result; "*" any, "a|b" one of them.
std::vector<std::string> choices(const std::string& text) {
  const graph::Graph graph = graph::parse("graph g {\n" + text + "\n}");
  std::vector<std::string> out;
  for (const StickChoice& choice : stick_choices(graph, graph.ops.back())) {
    std::string line;
    for (const StickSet set : choice.operands) {
      std::string one;
      for (int s = -1; s < 6 && !(set == StickSet::all()); ++s) {
        if (set.contains(s)) one += (one.empty() ? "" : "|") + std::to_string(s);
      }
      line += (line.empty() ? "" : ",") + (set == StickSet::all() ? "*" : one);
    }
    out.push_back(line + "->" + std::to_string(choice.result) + (choice.aligned ? "!" : ""));
  }
  return out;
}
using Lines = std::vector<std::string>;

TEST(StickChoices, PointwiseOperatorsFollowOneStick) {
  EXPECT_EQ(choices("input %x : f16[4,64]\n%y = exp(%x)\nreturn %y"), (Lines{"-1->-1", "0->0", "1->1!"}));
  EXPECT_EQ(choices("input %x : f16[4,64]\ninput %z : f16[4,64]\n%y = add(%x, %z)\nreturn %y"),
            (Lines{"-1,-1->-1", "0,0->0", "1,1->1!"}));
  // A row and a column that are broadcast.
  EXPECT_EQ(choices("input %x : f16[4,64]\ninput %z : f16[64]\n%y = add(%x, %z)\nreturn %y"),
            (Lines{"-1,-1->-1", "0,-1->0", "1,0->1!"}));
}

TEST(StickChoices, AColumnIsThin) {
  const Lines lines = choices("input %x : f16[4,64]\ninput %z : f16[4,1]\n%y = add(%x, %z)\nreturn %y");
  EXPECT_EQ(lines, (Lines{"-1,-1|1->-1", "0,0->0", "1,-1|1->1!"}));
}

TEST(StickChoices, SomeOperatorsAreFixed) {
  EXPECT_EQ(choices("input %x : f16[4,64]\nparam %w : f16[64,8]\n%y = matmul(%x, %w)\nreturn %y"), Lines{"1,1->1"});
  EXPECT_EQ(choices("input %x : f16[4,64]\nparam %w : f16[8,64]\n%y = linear(%x, %w)\nreturn %y"), Lines{"1,0->1"});
  EXPECT_EQ(choices("input %x : f16[4,64]\nparam %w : f16[64]\n%y = rms_norm(%x, %w) {eps=1e-05}\nreturn %y"),
            Lines{"1,0->1"});
  EXPECT_EQ(choices("input %x : f16[4,2,64]\ninput %t : f16[4,64]\n%y = rotary(%x, %t)\nreturn %y"), Lines{"2,1->2"});
}

TEST(StickChoices, LookedUpRowsAreNotInTheStick) {
  EXPECT_EQ(choices("param %t : f16[9,2,64]\ninput %i : i32[4]\n%y = gather_rows(%t, %i)\nreturn %y"),
            (Lines{"-1,*->-1", "1,*->1", "2,*->2!"}));
}

TEST(StickChoices, ViewsMoveTheStick) {
  EXPECT_EQ(choices("input %x : f16[2,3,64]\n%y = transpose(%x) {perm=[2,0,1]}\nreturn %y"),
            (Lines{"-1->-1", "0->1", "1->2", "2->0!"}));
  // The last dimension of a group stays the last of what it becomes.
  EXPECT_EQ(choices("input %x : f16[6,128]\n%y = reshape(%x) {shape=[2,3,128]}\nreturn %y"),
            (Lines{"-1->-1", "0->1", "1->2!"}));
  EXPECT_EQ(choices("input %x : f16[64]\n%y = broadcast(%x) {shape=[3,64]}\nreturn %y"), (Lines{"-1->-1", "0->1!"}));
}

TEST(StickChoices, AReductionAlongTheStickIsSparse) {
  EXPECT_EQ(choices("input %x : f16[4,64]\n%y = reduce_sum(%x) {axis=1}\nreturn %y"),
            (Lines{"-1->-1", "0->0", "1->-1"}));
  EXPECT_EQ(choices("input %x : f16[4,64]\n%y = reduce_sum(%x) {axis=1, keepdims=1}\nreturn %y"),
            (Lines{"-1->-1", "0->0", "1->1"}));
}

TEST(StickChoices, WhatCannotBeMoved) {
  const graph::Type half = graph::Type::tensor(DType::kF16, std::vector<int64_t>{4, 64, 1});
  const graph::Type full = graph::Type::tensor(DType::kF32, std::vector<int64_t>{4, 64, 1});
  EXPECT_EQ(restickify_obstacle(half, 1, 0), std::nullopt);
  EXPECT_EQ(restickify_obstacle(half, 2, -1), std::nullopt);
  EXPECT_EQ(restickify_obstacle(half, 1, 2), device::Rule::kRestickifySparse);
  EXPECT_EQ(restickify_obstacle(half, -1, 0), device::Rule::kRestickifySparse);
  EXPECT_EQ(restickify_obstacle(full, 1, 0), device::Rule::kRestickifyFp32);
  EXPECT_EQ(restickify_obstacle(full, 1, 1), std::nullopt);
  EXPECT_EQ(restickify_cost(half, 0), 64 * 64);
  EXPECT_EQ(restickify_cost(half, 1), 4 * 64);
}

}  // namespace
}  // namespace spyre::compiler
