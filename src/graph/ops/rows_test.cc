// reduce.cc, softmax.cc, norm.cc, gather_rows.cc, rotary.cc, rotate_2x2.cc
#include <random>

#include "base/vector_math.h"
#include "graph/ops/op_testing.h"

namespace spyre::graph {
namespace {

using testing::evaluate;
using testing::floats;
using testing::violation;

const testing::Operand kSix{"f16[@2,3]", {1, 2, 3, 4, 5, 9}};

TEST(Reduce, ConstantsInConstantsOut) {
  EXPECT_EQ(floats(evaluate("reduce_sum", {kSix}, "{axis=1}")), (std::vector<float>{6, 18}));
  EXPECT_EQ(floats(evaluate("reduce_mean", {kSix}, "{axis=1}")), (std::vector<float>{2, 6}));
  EXPECT_EQ(floats(evaluate("reduce_max", {kSix}, "{axis=-1}")), (std::vector<float>{3, 9}));
  EXPECT_EQ(floats(evaluate("reduce_sum", {{"f16[2,3]", kSix.values}}, "{axis=0}")), (std::vector<float>{5, 7, 12}));
  EXPECT_EQ(evaluate("reduce_sum", {kSix}, "{axis=1}").type().to_string(), "f16[@2]");
  EXPECT_EQ(evaluate("reduce_sum", {kSix}, "{axis=1, keepdims=1}").type().to_string(), "f16[@2,1]");
}
TEST(Reduce, C1_FloatTensor) {
  SPYRE_EXPECT_VIOLATION("reduce_sum C1", violation("reduce_sum", {"i32[2]"}, "{axis=0}"));
}
TEST(Reduce, C2_Axis) {
  SPYRE_EXPECT_VIOLATION("reduce_sum C2", violation("reduce_sum", {"f16[2]"}, "{axis=1}"));
}
TEST(Reduce, C3_NotRows) {
  SPYRE_EXPECT_VIOLATION("reduce_max C3", violation("reduce_max", {"f16[@2,3]"}, "{axis=0}"));
}
TEST(Reduce, C4_Keepdims) {
  SPYRE_EXPECT_VIOLATION("reduce_mean C4", violation("reduce_mean", {"f16[2]"}, "{axis=0, keepdims=2}"));
}

TEST(Softmax, ConstantsInConstantsOut) {
  EXPECT_EQ(floats(evaluate("softmax", {{"f16[@2,2]", {3, 3, 0, -100}}})), (std::vector<float>{0.5f, 0.5f, 1, 0}));
}
TEST(Softmax, C1_FloatTensorWithAnAxis) {
  SPYRE_EXPECT_VIOLATION("softmax C1", violation("softmax", {"i32[2]"}));
  SPYRE_EXPECT_VIOLATION("softmax C1", violation("softmax", {"f16[]"}));
}
TEST(Softmax, C2_NotRows) {
  SPYRE_EXPECT_VIOLATION("softmax C2", violation("softmax", {"f16[3,@2]"}));
}

TEST(RmsNorm, ConstantsInConstantsOut) {
  const Array y = evaluate("rms_norm", {{"f16[@2,4]", {2, 2, 2, 2, 0, 4, 0, 0}}, {"f16[4]", {1, 2, 3, 4}}}, "{eps=0}");
  EXPECT_EQ(floats(y), (std::vector<float>{1, 2, 3, 4, 0, 4, 0, 0}));
}
TEST(RmsNorm, C1_SameFloatDtype) {
  SPYRE_EXPECT_VIOLATION("rms_norm C1", violation("rms_norm", {"f16[2,4]", "f32[4]"}, "{eps=0}"));
}
TEST(RmsNorm, C2_LastAxis) {
  SPYRE_EXPECT_VIOLATION("rms_norm C2", violation("rms_norm", {"f16[]", "f16[1]"}, "{eps=0}"));
  SPYRE_EXPECT_VIOLATION("rms_norm C2", violation("rms_norm", {"f16[2,@4]", "f16[4]"}, "{eps=0}"));
}
TEST(RmsNorm, C3_WeightShape) {
  SPYRE_EXPECT_VIOLATION("rms_norm C3", violation("rms_norm", {"f16[2,4]", "f16[2]"}, "{eps=0}"));
  SPYRE_EXPECT_VIOLATION("rms_norm C3", violation("rms_norm", {"f16[2,4]", "f16[1,4]"}, "{eps=0}"));
}
TEST(RmsNorm, C4_Eps) {
  SPYRE_EXPECT_VIOLATION("rms_norm C4", violation("rms_norm", {"f16[2,4]", "f16[4]"}, "{eps=-1}"));
}

TEST(LayerNorm, ConstantsInConstantsOut) {
  const Array y = evaluate(
      "layer_norm", {{"f16[@1,4]", {1, 3, 1, 3}}, {"f16[4]", {1, 2, 3, 4}}, {"f16[4]", {0, 0, 1, 1}}}, "{eps=0}");
  EXPECT_EQ(floats(y), (std::vector<float>{-1, 2, -2, 5}));
}
TEST(LayerNorm, C1_SameFloatDtype) {
  SPYRE_EXPECT_VIOLATION("layer_norm C1", violation("layer_norm", {"f16[2,4]", "f16[4]", "bf16[4]"}, "{eps=0}"));
}
TEST(LayerNorm, C2_LastAxis) {
  SPYRE_EXPECT_VIOLATION("layer_norm C2", violation("layer_norm", {"f16[2,@4]", "f16[4]", "f16[4]"}, "{eps=0}"));
}
TEST(LayerNorm, C3_WeightShapes) {
  SPYRE_EXPECT_VIOLATION("layer_norm C3", violation("layer_norm", {"f16[2,4]", "f16[4]", "f16[3]"}, "{eps=0}"));
}
TEST(LayerNorm, C4_Eps) {
  SPYRE_EXPECT_VIOLATION("layer_norm C4", violation("layer_norm", {"f16[2,4]", "f16[4]", "f16[4]"}, "{eps=-1}"));
}

TEST(GatherRows, ConstantsInConstantsOut) {
  const Array y = evaluate("gather_rows", {{"f16[3,2]", {1, 2, 3, 4, 5, 6}}, {"i32[@4]", {2, 0, 0, 1}}});
  EXPECT_EQ(y.type().to_string(), "f16[@4,2]");
  EXPECT_EQ(floats(y), (std::vector<float>{5, 6, 1, 2, 1, 2, 3, 4}));
  EXPECT_EQ(evaluate("gather_rows", {{"i32[3]", {7, 8, 9}}, {"i32[1]", {2}}}).ints()[0], 9);
}
TEST(GatherRows, RefusesAnIdOutsideTheTable) {
  for (const float id : {3.0f, -1.0f}) {
    try {
      evaluate("gather_rows", {{"f16[3,2]", {1, 2, 3, 4, 5, 6}}, {"i32[2]", {0, id}}});
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_EQ(error.what(), fmt::format("gather_rows: id {} at position 1 is outside the table of 3 rows", id));
    }
  }
}
TEST(GatherRows, C1_Table) {
  SPYRE_EXPECT_VIOLATION("gather_rows C1", violation("gather_rows", {"f16[]", "i32[2]"}));
  SPYRE_EXPECT_VIOLATION("gather_rows C1", violation("gather_rows", {"f16[@3,2]", "i32[2]"}));
}
TEST(GatherRows, C2_Ids) {
  SPYRE_EXPECT_VIOLATION("gather_rows C2", violation("gather_rows", {"f16[3,2]", "f16[2]"}));
  SPYRE_EXPECT_VIOLATION("gather_rows C2", violation("gather_rows", {"f16[3,2]", "i32[2,2]"}));
}

TEST(Rotary, ConstantsInConstantsOut) {
  // Token 0: no rotation. Token 1: a quarter turn in the first plane, a half turn in the second.
  const Array y =
      evaluate("rotary", {{"f16[@2,1,4]", {1, 2, 3, 4, 1, 2, 3, 4}}, {"f16[@2,4]", {1, 1, 0, 0, 0, -1, 1, 0}}});
  EXPECT_EQ(floats(y), (std::vector<float>{1, 2, 3, 4, -3, -2, 1, -4}));
}
TEST(Rotary, C1_SameFloatDtype) {
  SPYRE_EXPECT_VIOLATION("rotary C1", violation("rotary", {"f16[2,1,4]", "f32[2,4]"}));
}
TEST(Rotary, C2_Shape) {
  SPYRE_EXPECT_VIOLATION("rotary C2", violation("rotary", {"f16[2,4]", "f16[2,4]"}));
  SPYRE_EXPECT_VIOLATION("rotary C2", violation("rotary", {"f16[2,@1,4]", "f16[2,4]"}));
}
TEST(Rotary, C3_Even) {
  SPYRE_EXPECT_VIOLATION("rotary C3", violation("rotary", {"f16[2,1,5]", "f16[2,5]"}));
}
TEST(Rotary, C4_Table) {
  SPYRE_EXPECT_VIOLATION("rotary C4", violation("rotary", {"f16[@2,1,4]", "f16[2,4]"}));
  SPYRE_EXPECT_VIOLATION("rotary C4", violation("rotary", {"f16[@2,1,4]", "f16[@2,2]"}));
}

TEST(Rotate2x2, HasTheBitsOfRotary) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    std::mt19937 random(3);
    const auto values = [&](int64_t n) {
      std::vector<float> out(n);
      for (float& x : out) x = round_to(dtype, std::uniform_real_distribution<float>(-2, 2)(random));
      return out;
    };
    constexpr int64_t kTokens = 3, kHeads = 2, kHalf = 5;
    const std::vector<float> x = values(kTokens * kHeads * 2 * kHalf), table = values(kTokens * 2 * kHalf);
    std::vector<float> rotation;
    for (int64_t t = 0; t < kTokens; ++t) {
      const float* cos = table.data() + t * 2 * kHalf;
      const float* sin = cos + kHalf;
      rotation.insert(rotation.end(), cos, cos + kHalf);
      for (int i = 0; i < kHalf; ++i) rotation.push_back(-sin[i]);
      rotation.insert(rotation.end(), sin, sin + kHalf);
      rotation.insert(rotation.end(), cos, cos + kHalf);
    }
    const std::string d(to_string(dtype));
    EXPECT_EQ(floats(evaluate("rotate_2x2", {{d + "[@3,2,10]", x}, {d + "[@3,2,2,5]", rotation}})),
              floats(evaluate("rotary", {{d + "[@3,2,10]", x}, {d + "[@3,10]", table}})));
  }
}
TEST(Rotate2x2, ConstantsInConstantsOut) {
  EXPECT_EQ(floats(evaluate("rotate_2x2", {{"f16[1,1,2]", {1, 2}}, {"f16[1,2,2,1]", {3, 4, 5, 6}}})),
            (std::vector<float>{11, 17}));
}
TEST(Rotate2x2, C1_SameFloatDtype) {
  SPYRE_EXPECT_VIOLATION("rotate_2x2 C1", violation("rotate_2x2", {"f16[2,1,4]", "f32[2,2,2,2]"}));
}
TEST(Rotate2x2, C2_Shape) {
  SPYRE_EXPECT_VIOLATION("rotate_2x2 C2", violation("rotate_2x2", {"f16[2,4]", "f16[2,2,2,2]"}));
}
TEST(Rotate2x2, C3_Even) {
  SPYRE_EXPECT_VIOLATION("rotate_2x2 C3", violation("rotate_2x2", {"f16[2,1,5]", "f16[2,2,2,2]"}));
}
TEST(Rotate2x2, C4_Matrices) {
  SPYRE_EXPECT_VIOLATION("rotate_2x2 C4", violation("rotate_2x2", {"f16[2,1,4]", "f16[2,2,2,4]"}));
  SPYRE_EXPECT_VIOLATION("rotate_2x2 C4", violation("rotate_2x2", {"f16[@2,1,4]", "f16[2,2,2,2]"}));
}

}  // namespace
}  // namespace spyre::graph
