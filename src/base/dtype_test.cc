#include "base/dtype.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace spyre {
namespace {

constexpr DType kAll[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kI32, DType::kI64,
                          DType::kI8,  DType::kU8,  DType::kBool, DType::kF64, DType::kI16};

TEST(DType, NamesParseBackToTheirType) {
  for (DType dtype : kAll) EXPECT_EQ(parse_dtype(to_string(dtype)), dtype) << to_string(dtype);
}

TEST(DType, KnowsTheLongNamesOfModelConfigs) {
  EXPECT_EQ(parse_dtype("float16"), DType::kF16);
  EXPECT_EQ(parse_dtype("half"), DType::kF16);
  EXPECT_EQ(parse_dtype("bfloat16"), DType::kBF16);
  EXPECT_EQ(parse_dtype("float32"), DType::kF32);
  EXPECT_EQ(parse_dtype("int64"), DType::kI64);
}

TEST(DType, RefusesAnUnknownNameAndRepeatsIt) {
  try {
    parse_dtype("float12");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("'float12'"), std::string::npos) << error.what();
  }
}

TEST(DType, Sizes) {
  EXPECT_EQ(size_of(DType::kF64), 8u);
  EXPECT_EQ(size_of(DType::kI64), 8u);
  EXPECT_EQ(size_of(DType::kF32), 4u);
  EXPECT_EQ(size_of(DType::kI32), 4u);
  EXPECT_EQ(size_of(DType::kF16), 2u);
  EXPECT_EQ(size_of(DType::kBF16), 2u);
  EXPECT_EQ(size_of(DType::kI16), 2u);
  EXPECT_EQ(size_of(DType::kI8), 1u);
  EXPECT_EQ(size_of(DType::kU8), 1u);
  EXPECT_EQ(size_of(DType::kBool), 1u);
}

}  // namespace
}  // namespace spyre
