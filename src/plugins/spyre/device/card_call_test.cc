// The rules of single calls, by number: each with a call that keeps it and calls that break it.
#include "plugins/spyre/device/card_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "plugins/spyre/device/card_functions.h"
#include "plugins/spyre/device/matmul_sticks.h"

namespace spyre::device {
namespace {

using ::testing::StartsWith;

// "" or the refusal.
template <typename Check>
std::string refusal_of(Check&& check) {
  try {
    check();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRuleViolation) << error.what();
    return error.what();
  }
  return "";
}
std::string refusal(const CardCall& call) {
  return refusal_of([&] { check_card_call(call); });
}

// A tensor whose dimensions are walked by |walks|, the one at |stick| in the stick.
CardOperand operand(std::vector<int> walks, int stick, Arrangement arrangement = Arrangement::kStandard) {
  return {.name = "%x", .arrangement = arrangement, .walks = std::move(walks), .stick = stick};
}

CardCall call(std::string name, std::vector<CardOperand> inputs, CardOperand output) {
  return {.name = std::move(name), .what = "op %y", .inputs = std::move(inputs), .outputs = {std::move(output)}};
}

// [rows, columns] by columns; a row vector; a column.
const CardOperand kMatrix = operand({0, 1}, 1), kRow = operand({1}, 0), kColumn = operand({0, -1}, -1);
const CardOperand kScalar = operand({}, -1);

TEST(CardCall, TheCardsFunctionsAreKnown) {
  std::set<std::string_view> names;
  for (const CardFunction& function : all_card_functions()) {
    EXPECT_TRUE(names.insert(function.name).second) << function.name;
    EXPECT_EQ(find_card_function(function.name), &function);
  }
  EXPECT_EQ(find_card_function("cumsum"), nullptr);
}

TEST(CardCall, MaskedFunctionsSayWithWhat) {
  EXPECT_EQ(find_card_function("max")->fill, Fill::kLowest);
  EXPECT_EQ(find_card_function("minnonstick")->fill, Fill::kHighest);
  EXPECT_EQ(find_card_function("batchmatmul")->fill, Fill::kZero);
  EXPECT_EQ(find_card_function("exx2")->fill, Fill::kZero);
  EXPECT_EQ(find_card_function("add")->fill, Fill::kNone);
}

TEST(CardCall, L20_NoLowering) {
  EXPECT_EQ(refusal(call("add", {kMatrix, kMatrix}, kMatrix)), "");
  EXPECT_THAT(refusal(call("cumsum", {kMatrix}, kMatrix)), StartsWith("L-20"));
}

TEST(CardCall, L25_StickConflict) {
  EXPECT_EQ(refusal(call("add", {kMatrix, kRow}, kMatrix)), "");
  EXPECT_EQ(refusal(call("mul", {kMatrix, kScalar}, kMatrix)), "");
  EXPECT_EQ(refusal(call("mul", {kMatrix, kColumn}, kMatrix)), "");  // its stick is nobody's variable
  EXPECT_THAT(refusal(call("add", {kMatrix, operand({0, 1}, 0)}, kMatrix)), StartsWith("L-25"));
  EXPECT_THAT(refusal(call("neg", {kMatrix}, operand({0, 1}, 0))), StartsWith("L-25"));
}
TEST(CardCall, L26_StickElsewhere) {
  EXPECT_EQ(refusal(call("add", {kMatrix, operand({0, -1}, 1)}, kMatrix)), "");
  EXPECT_THAT(refusal(call("add", {kMatrix, operand({0, 1}, -1)}, kMatrix)), StartsWith("L-26"));
  EXPECT_THAT(refusal(call("add", {operand({1, -1}, 1), kMatrix}, kMatrix)), StartsWith("L-26"));
}
TEST(CardCall, L27_StickOffset) {
  CardOperand from = kMatrix;
  from.stick_offset = 128;
  EXPECT_EQ(refusal(call("neg", {from}, kMatrix)), "");
  from.stick_offset = 32;
  EXPECT_THAT(refusal(call("neg", {from}, kMatrix)), StartsWith("L-27"));
  from.stick_offset = 0, from.stick_modulus = 64;
  EXPECT_THAT(refusal(call("neg", {from}, kMatrix)), StartsWith("L-27"));
  from.index = true;  // of a gather: exempt
  EXPECT_EQ(refusal(call("gather", {kMatrix, from}, kMatrix)), "");
}

TEST(CardCall, L29_StaggeredOp) {
  const CardOperand wide = operand({0, 1}, 1, Arrangement::kDl16ToFp32);
  const CardOperand other = operand({0, 1}, 1, Arrangement::kFp32ToDl16);
  EXPECT_EQ(refusal(call("exp", {wide}, wide)), "");
  EXPECT_EQ(refusal(call("add", {wide, wide}, wide)), "");
  EXPECT_EQ(refusal(call("add", {wide, kColumn}, wide)), "");  // one value along the stick
  EXPECT_EQ(refusal(call("add", {kScalar, wide}, wide)), "");
  EXPECT_EQ(refusal(call("cast", {wide}, kMatrix)), "");
  CardCall sum = call("sum", {wide}, kColumn);
  sum.reduced = {1};
  EXPECT_EQ(refusal(sum), "");
  EXPECT_THAT(refusal(call("add", {wide, other}, wide)), StartsWith("L-29"));
  EXPECT_THAT(refusal(call("add", {kMatrix, wide}, wide)), StartsWith("L-29"));
  EXPECT_THAT(refusal(call("add", {wide, kRow}, wide)), StartsWith("L-29"));
  EXPECT_THAT(refusal(call("identity", {wide}, wide)), StartsWith("L-29"));
  sum = call("sumnonstick", {wide}, kRow);
  sum.reduced = {0};
  EXPECT_THAT(refusal(sum), StartsWith("L-29"));
}
TEST(CardCall, L30_Exx2) {
  const CardOperand pair = operand({0, -1}, 1, Arrangement::kExx2);
  CardCall scale = call("layernormscale", {pair}, kColumn);
  scale.reduced = {1};
  EXPECT_EQ(refusal(scale), "");
  EXPECT_THAT(refusal(call("add", {pair, pair}, pair)), StartsWith("L-30"));
  EXPECT_THAT(refusal(call("cast", {pair}, kMatrix)), StartsWith("L-30"));
}

TEST(CardCall, L31_ReductionStick) {
  CardCall sum = call("sum", {kMatrix}, kColumn);
  sum.reduced = {1};
  EXPECT_EQ(refusal(sum), "");
  sum.reduced = {0};
  EXPECT_THAT(refusal(sum), StartsWith("L-31"));
  sum.name = "sumnonstick";
  EXPECT_EQ(refusal(sum), "");
  sum.reduced = {1};
  EXPECT_THAT(refusal(sum), StartsWith("L-31"));
  sum.reduced = {0, 1};
  EXPECT_THAT(refusal(sum), StartsWith("L-31"));
}
TEST(CardCall, L32_ProdOnStick) {
  CardCall prod = call("prod", {kMatrix}, kRow);
  prod.reduced = {0};
  EXPECT_EQ(refusal(prod), "");
  prod.reduced = {1};
  EXPECT_THAT(refusal(prod), StartsWith("L-32"));
}
TEST(CardCall, L33_Topk) {
  // [experts, tokens] with the tokens in the stick.
  CardCall topk = call("topk", {kMatrix}, operand({2, 1}, 1));
  topk.reduced = {0}, topk.k = 4, topk.k_walk = 2;
  EXPECT_EQ(refusal(topk), "");
  const auto broken = [&](auto&& change) {
    CardCall changed = topk;
    change(changed);
    return refusal(changed);
  };
  EXPECT_THAT(broken([](CardCall& c) { c.k = 5; }), StartsWith("L-33"));
  EXPECT_THAT(broken([](CardCall& c) { c.cores = 2; }), StartsWith("L-33"));
  EXPECT_THAT(broken([](CardCall& c) { c.reduced = {1}; }), StartsWith("L-33"));
  EXPECT_THAT(broken([](CardCall& c) { c.outputs[0].stick = 0; }), StartsWith("L-33"));
}
TEST(CardCall, L34_PadOnStick) {
  CardCall pad = call("constant_pad", {kMatrix}, kMatrix);
  pad.along = 1, pad.before = 64;
  EXPECT_EQ(refusal(pad), "");
  pad.before = 3;
  EXPECT_THAT(refusal(pad), StartsWith("L-34"));
  pad.along = 0;
  EXPECT_EQ(refusal(pad), "");
}
TEST(CardCall, L35_FlipOnStick) {
  CardCall flip = call("flip", {kMatrix}, kMatrix);
  flip.along = 0;
  EXPECT_EQ(refusal(flip), "");
  flip.along = 1;
  EXPECT_THAT(refusal(flip), StartsWith("L-35"));
}
TEST(CardCall, L36_SliceScatterStep) {
  CardCall scatter = call("slice_scatter", {kMatrix, kMatrix}, kMatrix);
  EXPECT_EQ(refusal(scatter), "");
  scatter.step = 2;
  EXPECT_THAT(refusal(scatter), StartsWith("L-36"));
}

// x[0 = M, 2 = K] @ y[2 = K, 1 = N]
TEST(CardCall, L37_MatmulSticks) {
  CardCall product = call("batchmatmul", {operand({0, 2}, 1), operand({2, 1}, 1)}, operand({0, 1}, 1));
  product.reduced = {2};
  EXPECT_EQ(refusal(product), "");
  const auto broken = [&](auto&& change) {
    CardCall changed = product;
    change(changed);
    return refusal(changed);
  };
  EXPECT_THAT(broken([](CardCall& c) { c.inputs[0].stick = 0; }), StartsWith("L-37"));
  EXPECT_THAT(broken([](CardCall& c) { c.inputs[1].stick = 0; }), StartsWith("L-37"));
  EXPECT_THAT(broken([](CardCall& c) { c.outputs[0].stick = 0; }), StartsWith("L-37"));
  EXPECT_THAT(broken([](CardCall& c) { c.outputs[0].type = CardType::kFp32; }), StartsWith("L-37"));
  EXPECT_THAT(broken([](CardCall& c) { c.inputs[1].type = CardType::kInt8; }), StartsWith("L-37"));
}
TEST(MatmulSticks, L37_TablesByType) {
  for (const CardType type : {CardType::kDl16, CardType::kInt8, CardType::kFp8E4M3, CardType::kInt4}) {
    const MatmulLayouts made = matmul_layouts(type, {.batch = {2}, .m = 5, .k = 300, .n = 100});
    EXPECT_EQ(refusal_of([&] { check_matmul_layouts(made); }), "") << info(type).name;
    EXPECT_EQ(made.out, default_layout(CardType::kDl16, {2, 5, 100}));
    MatmulLayouts plain = made;
    plain.y = default_layout(type, {2, 300, 100}, {0, 2, 1});  // K in the stick
    EXPECT_THAT(refusal_of([&] { check_matmul_layouts(plain); }), StartsWith("L-37")) << info(type).name;
  }
  EXPECT_EQ(matmul_layouts(CardType::kInt8, {.m = 5, .k = 300, .n = 100}).y.device_size,
            (std::vector<int64_t>{2, 150, 2, 64}));
  // A result is the next x; a transposed y is not.
  const MatmulLayouts first = matmul_layouts(CardType::kDl16, {.m = 5, .k = 300, .n = 100});
  EXPECT_EQ(first.out, matmul_layouts(CardType::kDl16, {.m = 5, .k = 100, .n = 7}).x);
}
TEST(MatmulSticks, L04_L19_TypesAndBatches) {
  const auto made = [](CardType type, std::vector<int64_t> batch) {
    return refusal_of([&] { matmul_layouts(type, {.batch = std::move(batch), .m = 4, .k = 64, .n = 64}); });
  };
  EXPECT_EQ(made(CardType::kDl16, {2, 3}), "");
  EXPECT_THAT(made(CardType::kFp32, {}), StartsWith("L-04"));
  EXPECT_THAT(made(CardType::kDl16, {2, 3, 4}), StartsWith("L-19"));
}

TEST(CardCall, L38_Int32Ops) {
  CardOperand ints = kMatrix;
  ints.type = CardType::kInt32;
  EXPECT_EQ(refusal(call("add", {ints, ints}, ints)), "");
  EXPECT_EQ(refusal(call("identity", {ints}, ints)), "");
  EXPECT_THAT(refusal(call("less", {ints, ints}, kMatrix)), StartsWith("L-38"));
  EXPECT_THAT(refusal(call("maximum", {ints, ints}, ints)), StartsWith("L-38"));
}
TEST(CardCall, L39_NormStick) {
  CardCall norm = call("layernormnorm", {kMatrix, kColumn, kRow}, kMatrix);
  norm.reduced = {1};
  EXPECT_EQ(refusal(norm), "");
  norm.reduced = {0};
  EXPECT_THAT(refusal(norm), StartsWith("L-39"));
}

}  // namespace
}  // namespace spyre::device
