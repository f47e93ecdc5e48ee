#include "plugins/spyre/layers/layers.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace spyre::layers {
namespace {

using Options = nn::RotaryEmbedding::Options;

TEST(SpyreRotary, HoldsTheMatrixOfEachPositionAndLane) {
  const SpyreRotaryEmbedding layer({.path = "r", .head_size = 4, .max_positions = 3, .dtype = DType::kF32});
  const nn::Parameter& cache = *layer.parameters().at(0);
  ASSERT_EQ(cache.type.extents(), (std::vector<int64_t>{3, 2, 2, 2}));
  const float* m = cache.buffer.as<float>() + 8;  // position 1: lanes of angle 1 and 1/100
  const std::vector<float> frequency = {1.0f, 0.01f};
  for (int i = 0; i < 2; ++i) {
    EXPECT_NEAR(m[i], std::cos(frequency[i]), 1e-6);
    EXPECT_NEAR(m[2 + i], -std::sin(frequency[i]), 1e-6);
    EXPECT_NEAR(m[4 + i], std::sin(frequency[i]), 1e-6);
    EXPECT_NEAR(m[6 + i], std::cos(frequency[i]), 1e-6);
  }
}

ErrorCode refusal(const Options& options) {
  try {
    const SpyreRotaryEmbedding layer(options);
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

// The table is what a config may ask for: a hostile one must not take memory first.
TEST(SpyreRotary, OddHeadsAndAbsurdTablesAreRefused) {
  EXPECT_EQ(refusal({.path = "r", .head_size = 15, .max_positions = 10}), ErrorCode::kUnsupported);
  EXPECT_EQ(refusal({.path = "r", .head_size = 1024, .max_positions = int64_t{1} << 24}),
            ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace spyre::layers
