#include "graph/type.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace spyre::graph {
namespace {

TEST(Type, PrintsItself) {
  EXPECT_EQ(Type::tensor(DType::kF16, {{64, true}, {576, false}}).to_string(), "f16[@64,576]");
  EXPECT_EQ(Type::tensor(DType::kI32, std::vector<int64_t>{}).to_string(), "i32[]");
  EXPECT_EQ(Type::kv_cache(DType::kBF16, 3, 64).to_string(), "kv bf16[3,64]");
  EXPECT_EQ(Type::batch().to_string(), "batch");
}

TEST(Type, CountsElementsAndFindsRows) {
  const Type type = Type::tensor(DType::kF16, {{2, false}, {5, true}, {3, false}});
  EXPECT_EQ(type.elements(), 30);
  EXPECT_EQ(type.rows_axis(), 1);
  EXPECT_EQ(type.extent(-1), 3);
  EXPECT_EQ(Type::tensor(DType::kF16, std::vector<int64_t>{}).elements(), 1);
  EXPECT_EQ(Type::from_shape(DType::kF16, {2, -1, 3}, 5), type);
}

TEST(Type, ValidationBoundsExtentsRankAndRows) {
  const auto refused = [](const Type& type) {
    try {
      type.validate();
    } catch (const Error& error) {
      return error.code() == ErrorCode::kInvalidArgument;
    }
    return false;
  };
  EXPECT_FALSE(refused(Type::tensor(DType::kF16, std::vector<int64_t>{kMaxExtent, 1})));
  EXPECT_TRUE(refused(Type::tensor(DType::kF16, std::vector<int64_t>{kMaxExtent, 2})));
  EXPECT_TRUE(refused(Type::tensor(DType::kF16, std::vector<int64_t>{kMaxExtent, kMaxExtent, kMaxExtent})));
  EXPECT_TRUE(refused(Type::tensor(DType::kF16, std::vector<int64_t>{-1})));
  EXPECT_TRUE(refused(Type::tensor(DType::kF16, std::vector<int64_t>(7, 1))));
  EXPECT_TRUE(refused(Type::tensor(DType::kF16, {{2, true}, {2, true}})));
  EXPECT_TRUE(refused(Type::tensor(DType::kF64, std::vector<int64_t>{2})));
  EXPECT_TRUE(refused(Type::kv_cache(DType::kI32, 2, 2)));
}

}  // namespace
}  // namespace spyre::graph
