// unary.cc, binary.cc, scale.cc, convert.cc
#include <cmath>

#include "base/vector_math.h"
#include "graph/ops/op_testing.h"

namespace spyre::graph {
namespace {

using ::testing::ElementsAre;
using testing::evaluate;
using ::testing::FloatEq;
using ::testing::FloatNear;
using testing::floats;
using testing::violation;

float unary(std::string_view op, float x, EvalMode mode = EvalMode::kFp32) {
  return evaluate(op, {{"f16[1]", {x}}}, "", mode).floats()[0];
}

TEST(Unary, ConstantsInConstantsOut) {
  EXPECT_EQ(floats(evaluate("neg", {{"f16[@3]", {1, -2, 0.5f}}})), (std::vector<float>{-1, 2, -0.5f}));
  EXPECT_EQ(floats(evaluate("abs", {{"f16[3]", {1, -2, 0.5f}}})), (std::vector<float>{1, 2, 0.5f}));
  EXPECT_EQ(floats(evaluate("sqrt", {{"bf16[2]", {4, 2.25f}}})), (std::vector<float>{2, 1.5f}));
  EXPECT_EQ(floats(evaluate("rsqrt", {{"f16[2]", {4, 0.25f}}})), (std::vector<float>{0.5f, 2}));
  EXPECT_EQ(floats(evaluate("reciprocal", {{"f16[2]", {4, -0.5f}}})), (std::vector<float>{0.25f, -2}));
  EXPECT_EQ(floats(evaluate("relu", {{"f16[3]", {4, -0.5f, 0}}})), (std::vector<float>{4, 0, 0}));
  EXPECT_THAT(unary("exp", 1), FloatNear(2.7182817f, 1e-6f));
  EXPECT_THAT(unary("log", 2), FloatNear(0.69314718f, 1e-6f));
  EXPECT_THAT(unary("tanh", 0.5f), FloatNear(0.46211716f, 1e-6f));
  EXPECT_THAT(unary("sigmoid", 1), FloatNear(0.73105858f, 1e-6f));
  EXPECT_THAT(unary("silu", 1), FloatNear(0.73105858f, 1e-6f));
  EXPECT_THAT(unary("gelu", 1), FloatNear(0.84134475f, 1e-6f));
  EXPECT_THAT(unary("gelu_tanh", 1), FloatNear(0.84119199f, 1e-6f));
}

TEST(Unary, RoundsOnceInExactModeOnly) {
  EXPECT_EQ(unary("exp", 1, EvalMode::kExact), round_to(DType::kF16, exp_f32(1)));
  EXPECT_EQ(unary("exp", 1, EvalMode::kFp32), exp_f32(1));
  EXPECT_EQ(evaluate("exp", {{"bf16[1]", {1}}}).floats()[0], 2.71875f);
  EXPECT_TRUE(std::isinf(unary("exp", 12, EvalMode::kExact))) << "past 65504";
}

TEST(Unary, C1_FloatTensor) {
  SPYRE_EXPECT_VIOLATION("exp C1", violation("exp", {"i32[2]"}));
  SPYRE_EXPECT_VIOLATION("neg C1", violation("neg", {"batch"}));
}

TEST(Binary, ConstantsInConstantsOut) {
  const testing::Operand a{"f16[2,2]", {1, 2, -3, 4}}, b{"f16[2,2]", {2, 0.5f, 2, 4}};
  EXPECT_EQ(floats(evaluate("add", {a, b})), (std::vector<float>{3, 2.5f, -1, 8}));
  EXPECT_EQ(floats(evaluate("sub", {a, b})), (std::vector<float>{-1, 1.5f, -5, 0}));
  EXPECT_EQ(floats(evaluate("mul", {a, b})), (std::vector<float>{2, 1, -6, 16}));
  EXPECT_EQ(floats(evaluate("div", {a, b})), (std::vector<float>{0.5f, 4, -1.5f, 1}));
  EXPECT_EQ(floats(evaluate("maximum", {a, b})), (std::vector<float>{2, 2, 2, 4}));
  EXPECT_EQ(floats(evaluate("minimum", {a, b})), (std::vector<float>{1, 0.5f, -3, 4}));
  EXPECT_EQ(floats(evaluate("add", {{"f16[1]", {2048}}, {"f16[1]", {1}}})), (std::vector<float>{2048})) << "rounds";
}

TEST(Binary, BroadcastsAsNumpy) {
  const auto check = [](const std::string& a, std::vector<float> x, const std::string& b, std::vector<float> y,
                        const std::string& type, std::vector<float> expected) {
    const Array result = evaluate("sub", {{a, std::move(x)}, {b, std::move(y)}});
    EXPECT_EQ(result.type().to_string(), type);
    EXPECT_EQ(floats(result), expected) << a << " " << b;
  };
  check("f16[@2,3]", {1, 2, 3, 4, 5, 6}, "f16[3]", {1, 1, 2}, "f16[@2,3]", {0, 1, 1, 3, 4, 4});
  check("f16[3]", {1, 1, 2}, "f16[@2,3]", {1, 2, 3, 4, 5, 6}, "f16[@2,3]", {0, -1, -1, -3, -4, -4});
  check("f16[@2,1]", {10, 20}, "f16[1,3]", {1, 2, 3}, "f16[@2,3]", {9, 8, 7, 19, 18, 17});
  check("f16[@2,3]", {1, 2, 3, 4, 5, 6}, "f16[@2,1]", {1, 2}, "f16[@2,3]", {0, 1, 2, 2, 3, 4});
  check("f16[]", {3}, "f16[2]", {1, 2}, "f16[2]", {2, 1});
  check("f16[]", {3}, "f16[]", {1}, "f16[]", {2});
  check("f16[2,1,2]", {1, 2, 3, 4}, "f16[2,1]", {1, 2}, "f16[2,2,2]", {0, 1, -1, 0, 2, 3, 1, 2});
}

TEST(Binary, C1_SameFloatDtype) {
  SPYRE_EXPECT_VIOLATION("add C1", violation("add", {"f16[2]", "bf16[2]"}));
  SPYRE_EXPECT_VIOLATION("add C1", violation("add", {"i32[2]", "i32[2]"}));
}
TEST(Binary, C2_ShapesBroadcast) {
  SPYRE_EXPECT_VIOLATION("mul C2", violation("mul", {"f16[2,3]", "f16[2]"}));
}
TEST(Binary, C3_RowsMeetRows) {
  SPYRE_EXPECT_VIOLATION("mul C3", violation("mul", {"f16[@2,3]", "f16[2,3]"}));
  SPYRE_EXPECT_VIOLATION("mul C3", violation("mul", {"f16[@2,3]", "f16[@4,3]"}));
  SPYRE_EXPECT_VIOLATION("mul C3", violation("mul", {"f16[@1,3]", "f16[5,3]"}));
  SPYRE_EXPECT_VIOLATION("mul C3", violation("mul", {"f16[@2,1]", "f16[1,@3]"}));
}

TEST(Scale, ConstantsInConstantsOut) {
  EXPECT_EQ(floats(evaluate("scale", {{"f16[@2]", {1, -3}}}, "{factor=0.5}")), (std::vector<float>{0.5f, -1.5f}));
}
TEST(Scale, C1_FloatTensor) {
  SPYRE_EXPECT_VIOLATION("scale C1", violation("scale", {"i32[2]"}, "{factor=2}"));
}
TEST(Offset, ConstantsInConstantsOut) {
  EXPECT_EQ(floats(evaluate("offset", {{"bf16[2]", {1, -3}}}, "{value=0.5}")), (std::vector<float>{1.5f, -2.5f}));
}
TEST(Offset, C1_FloatTensor) {
  SPYRE_EXPECT_VIOLATION("offset C1", violation("offset", {"i32[2]"}, "{value=2}"));
}

TEST(Convert, ConstantsInConstantsOut) {
  const Array y = evaluate("convert", {{"f32[3]", {1.0009765625f, 70000, 0.1f}}}, "{dtype=\"bf16\"}");
  EXPECT_EQ(y.type().to_string(), "bf16[3]");
  EXPECT_EQ(floats(y), (std::vector<float>{1, 70144, 0.10009765625f}));
  EXPECT_EQ(floats(evaluate("convert", {{"f16[1]", {0.5f}}}, "{dtype=\"f32\"}")), (std::vector<float>{0.5f}));
}
TEST(Convert, C1_FloatTensor) {
  SPYRE_EXPECT_VIOLATION("convert C1", violation("convert", {"i32[2]"}, "{dtype=\"f16\"}"));
}
TEST(Convert, C2_FloatDtype) {
  SPYRE_EXPECT_VIOLATION("convert C2", violation("convert", {"f16[2]"}, "{dtype=\"i32\"}"));
  SPYRE_EXPECT_VIOLATION("convert C2", violation("convert", {"f16[2]"}, "{dtype=\"q\"}"));
}

}  // namespace
}  // namespace spyre::graph
