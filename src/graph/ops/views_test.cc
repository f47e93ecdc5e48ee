// reshape.cc, transpose.cc, slice.cc, concat.cc, broadcast.cc
#include "graph/ops/op_testing.h"

namespace spyre::graph {
namespace {

using testing::evaluate;
using testing::floats;
using testing::violation;

const testing::Operand kSix{"f16[@2,3]", {1, 2, 3, 4, 5, 6}};

TEST(Reshape, ConstantsInConstantsOut) {
  const Array y = evaluate("reshape", {kSix}, "{shape=[1,-1,3,1]}");
  EXPECT_EQ(y.type().to_string(), "f16[1,@2,3,1]");
  EXPECT_EQ(floats(y), kSix.values);
  EXPECT_EQ(evaluate("reshape", {{"i32[6]", {1, 2, 3, 4, 5, 6}}}, "{shape=[2,3]}").ints()[5], 6);
  EXPECT_EQ(evaluate("reshape", {{"f16[1]", {1}}}, "{shape=[]}").type().to_string(), "f16[]");
}
TEST(Reshape, C1_Tensor) {
  SPYRE_EXPECT_VIOLATION("reshape C1", violation("reshape", {"batch"}, "{shape=[1]}"));
}
TEST(Reshape, C2_Entries) {
  SPYRE_EXPECT_VIOLATION("reshape C2", violation("reshape", {"f16[6]"}, "{shape=[0,6]}"));
  SPYRE_EXPECT_VIOLATION("reshape C2", violation("reshape", {"f16[6]"}, "{shape=[-2]}"));
  SPYRE_EXPECT_VIOLATION("reshape C2", violation("reshape", {"f16[6]"}, "{shape=[1,1,1,1,1,1,6]}"));
}
TEST(Reshape, C3_OneEntryForRows) {
  SPYRE_EXPECT_VIOLATION("reshape C3", violation("reshape", {"f16[@2,3]"}, "{shape=[2,3]}"));
  SPYRE_EXPECT_VIOLATION("reshape C3", violation("reshape", {"f16[2,3]"}, "{shape=[-1,3]}"));
  SPYRE_EXPECT_VIOLATION("reshape C3", violation("reshape", {"f16[@2,3]"}, "{shape=[-1,-1]}"));
}
TEST(Reshape, C4_Elements) {
  SPYRE_EXPECT_VIOLATION("reshape C4", violation("reshape", {"f16[2,3]"}, "{shape=[5]}"));
}
TEST(Reshape, C5_RowsStayApart) {
  SPYRE_EXPECT_VIOLATION("reshape C5", violation("reshape", {"f16[@2,2,3]"}, "{shape=[2,-1,3]}"));
}

TEST(Transpose, ConstantsInConstantsOut) {
  const Array y = evaluate("transpose", {kSix}, "{perm=[1,0]}");
  EXPECT_EQ(y.type().to_string(), "f16[3,@2]");
  EXPECT_EQ(floats(y), (std::vector<float>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(floats(evaluate("transpose", {{"f16[2,1,3]", kSix.values}}, "{perm=[2,0,1]}")),
            (std::vector<float>{1, 4, 2, 5, 3, 6}));
}
TEST(Transpose, C1_Tensor) {
  SPYRE_EXPECT_VIOLATION("transpose C1", violation("transpose", {"batch"}, "{perm=[]}"));
}
TEST(Transpose, C2_Permutation) {
  SPYRE_EXPECT_VIOLATION("transpose C2", violation("transpose", {"f16[2,3]"}, "{perm=[0]}"));
  SPYRE_EXPECT_VIOLATION("transpose C2", violation("transpose", {"f16[2,3]"}, "{perm=[0,0]}"));
  SPYRE_EXPECT_VIOLATION("transpose C2", violation("transpose", {"f16[2,3]"}, "{perm=[0,2]}"));
  SPYRE_EXPECT_VIOLATION("transpose C2", violation("transpose", {"f16[2,3]"}, "{perm=[0,-1]}"));
}

TEST(Slice, ConstantsInConstantsOut) {
  const Array y = evaluate("slice", {kSix}, "{axis=-1, start=1, size=2}");
  EXPECT_EQ(y.type().to_string(), "f16[@2,2]");
  EXPECT_EQ(floats(y), (std::vector<float>{2, 3, 5, 6}));
  EXPECT_EQ(floats(evaluate("slice", {{"f16[2,3]", kSix.values}}, "{axis=0, start=1, size=1}")),
            (std::vector<float>{4, 5, 6}));
}
TEST(Slice, C1_Tensor) {
  SPYRE_EXPECT_VIOLATION("slice C1", violation("slice", {"batch"}, "{axis=0, size=1}"));
}
TEST(Slice, C2_Axis) {
  SPYRE_EXPECT_VIOLATION("slice C2", violation("slice", {"f16[2,3]"}, "{axis=2, size=1}"));
  SPYRE_EXPECT_VIOLATION("slice C2", violation("slice", {"f16[2,3]"}, "{axis=-3, size=1}"));
}
TEST(Slice, C3_Range) {
  SPYRE_EXPECT_VIOLATION("slice C3", violation("slice", {"f16[2,3]"}, "{axis=1, size=0}"));
  SPYRE_EXPECT_VIOLATION("slice C3", violation("slice", {"f16[2,3]"}, "{axis=1, start=-1, size=1}"));
  SPYRE_EXPECT_VIOLATION("slice C3", violation("slice", {"f16[2,3]"}, "{axis=1, start=2, size=2}"));
  SPYRE_EXPECT_VIOLATION("slice C3", violation("slice", {"f16[2,3]"}, "{axis=1, start=2, size=9223372036854775807}"));
}
TEST(Slice, C4_NotRows) {
  SPYRE_EXPECT_VIOLATION("slice C4", violation("slice", {"f16[@2,3]"}, "{axis=0, size=1}"));
}

TEST(Concat, ConstantsInConstantsOut) {
  const Array y = evaluate("concat", {kSix, {"f16[@2,1]", {7, 8}}, kSix}, "{axis=1}");
  EXPECT_EQ(y.type().to_string(), "f16[@2,7]");
  EXPECT_EQ(floats(y), (std::vector<float>{1, 2, 3, 7, 1, 2, 3, 4, 5, 6, 8, 4, 5, 6}));
  EXPECT_EQ(evaluate("concat", {{"i32[1]", {1}}, {"i32[1]", {2}}}, "{axis=0}").ints()[1], 2);
}
TEST(Concat, C1_SameDtype) {
  SPYRE_EXPECT_VIOLATION("concat C1", violation("concat", {"f16[2]", "bf16[2]"}, "{axis=0}"));
  SPYRE_EXPECT_VIOLATION("concat C1", violation("concat", {"f16[2]", "batch"}, "{axis=0}"));
}
TEST(Concat, C2_Axis) {
  SPYRE_EXPECT_VIOLATION("concat C2", violation("concat", {"f16[2]"}, "{axis=1}"));
}
TEST(Concat, C3_OtherDimensions) {
  SPYRE_EXPECT_VIOLATION("concat C3", violation("concat", {"f16[2,3]", "f16[3,3]"}, "{axis=1}"));
  SPYRE_EXPECT_VIOLATION("concat C3", violation("concat", {"f16[@2,3]", "f16[2,3]"}, "{axis=1}"));
  SPYRE_EXPECT_VIOLATION("concat C3", violation("concat", {"f16[2,3]", "f16[2]"}, "{axis=0}"));
}
TEST(Concat, C4_NotRows) {
  SPYRE_EXPECT_VIOLATION("concat C4", violation("concat", {"f16[@2,3]", "f16[@2,3]"}, "{axis=0}"));
}

TEST(Broadcast, ConstantsInConstantsOut) {
  const Array y = evaluate("broadcast", {{"f16[@2,1]", {1, 2}}}, "{shape=[2,-1,3]}");
  EXPECT_EQ(y.type().to_string(), "f16[2,@2,3]");
  EXPECT_EQ(floats(y), (std::vector<float>{1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2}));
}
TEST(Broadcast, C1_Tensor) {
  SPYRE_EXPECT_VIOLATION("broadcast C1", violation("broadcast", {"batch"}, "{shape=[1]}"));
}
TEST(Broadcast, C2_Entries) {
  SPYRE_EXPECT_VIOLATION("broadcast C2", violation("broadcast", {"f16[1]"}, "{shape=[0]}"));
  SPYRE_EXPECT_VIOLATION("broadcast C2", violation("broadcast", {"f16[1]"}, "{shape=[1,1,1,1,1,1,1]}"));
}
TEST(Broadcast, C3_OneEntryForRows) {
  SPYRE_EXPECT_VIOLATION("broadcast C3", violation("broadcast", {"f16[@2,1]"}, "{shape=[2,3]}"));
  SPYRE_EXPECT_VIOLATION("broadcast C3", violation("broadcast", {"f16[1]"}, "{shape=[-1]}"));
}
TEST(Broadcast, C4_ShapesBroadcast) {
  SPYRE_EXPECT_VIOLATION("broadcast C4", violation("broadcast", {"f16[2]"}, "{shape=[3]}"));
  SPYRE_EXPECT_VIOLATION("broadcast C4", violation("broadcast", {"f16[3]"}, "{shape=[1]}"));
  SPYRE_EXPECT_VIOLATION("broadcast C4", violation("broadcast", {"f16[@2,3]"}, "{shape=[3,-1]}"));
  SPYRE_EXPECT_VIOLATION("broadcast C4", violation("broadcast", {"f16[2,3]"}, "{shape=[3]}"));
}

}  // namespace
}  // namespace spyre::graph
