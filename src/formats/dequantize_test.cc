#include "formats/dequantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>

#include "base/error.h"
#include "base/half.h"
#include "formats/hostile_test_util.h"
#include "formats/safetensors.h"

namespace spyre::formats {
namespace {

using testing::data_path;

// blocks.safetensors: random blocks, and what the Python package `gguf` makes of them.
class Oracle : public ::testing::TestWithParam<const char*> {};

TEST_P(Oracle, HasTheSameBits) {
  const auto file = SafetensorsFile::open(data_path("blocks.safetensors"));
  const std::string type = GetParam();
  const auto* blocks = file->find(type + ".blocks");
  const auto* values = file->find(type + ".values");
  ASSERT_TRUE(blocks && values);
  const size_t n = values->bytes / 4;
  uint32_t number = 0;
  while (find_ggml_type(number) == nullptr || find_ggml_type(number)->name != type) ++number;
  const GgmlTypeInfo& info = *find_ggml_type(number);
  ASSERT_EQ(blocks->bytes, n / info.block * info.bytes);
  std::vector<float> out(n);
  dequantize(number, file->data(*blocks).data(), n, out.data());
  EXPECT_EQ(std::memcmp(out.data(), file->data(*values).data(), n * 4), 0);
}

INSTANTIATE_TEST_SUITE_P(Dequantize, Oracle,
                         ::testing::Values("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K",
                                           "Q6_K", "IQ4_NL", "IQ4_XS", "F16", "BF16"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Dequantize, WidensEveryHalfLikeTheScalarForm) {
  std::vector<uint16_t> words(1 << 16);
  for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<uint16_t>(i);
  std::vector<float> f16(words.size()), bf16(words.size());
  widen_f16(reinterpret_cast<const std::byte*>(words.data()), words.size(), f16.data());
  widen_bf16(reinterpret_cast<const std::byte*>(words.data()), words.size(), bf16.data());
  for (size_t i = 0; i < words.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(f16[i]), std::bit_cast<uint32_t>(f16_to_f32(words[i]))) << i;
    ASSERT_EQ(std::bit_cast<uint32_t>(bf16[i]), std::bit_cast<uint32_t>(bf16_to_f32(words[i]))) << i;
  }
}

TEST(Dequantize, NarrowsLikeTheScalarForms) {
  std::mt19937 random(7);
  std::vector<float> source;
  for (int i = 0; i < 200000; ++i) source.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  // Around each tie and each edge of f16 and bf16.
  for (uint32_t word = 0; word < 0x8000; word += 3)
    for (int delta : {-1, 0, 1}) {
      source.push_back(
          std::bit_cast<float>(std::bit_cast<uint32_t>(f16_to_f32(static_cast<uint16_t>(word))) + 0x1000 + delta));
      source.push_back(std::bit_cast<float>((word << 16) + 0x8000 + delta));
    }
  for (size_t n : {source.size(), size_t{1}, size_t{7}, size_t{9}}) {
    std::vector<uint16_t> f16(n), bf16(n);
    narrow(source.data(), n, DType::kF16, reinterpret_cast<std::byte*>(f16.data()));
    narrow(source.data(), n, DType::kBF16, reinterpret_cast<std::byte*>(bf16.data()));
    for (size_t i = 0; i < n; ++i) {
      ASSERT_EQ(f16[i], f32_to_f16(source[i])) << std::bit_cast<uint32_t>(source[i]);
      ASSERT_EQ(bf16[i], f32_to_bf16(source[i])) << std::bit_cast<uint32_t>(source[i]);
    }
  }
}

TEST(Dequantize, RefusesBrokenRowsAndOtherTargets) {
  std::byte source[34] = {};
  float out[32] = {};
  EXPECT_THROW(dequantize(8, source, 31, out), Error);
  EXPECT_THROW(narrow(out, 4, DType::kI8, source), Error);
  EXPECT_THROW(dequantize(12, source, 32, out), Error);  // a K block has 256
  for (uint32_t number : {15u, 16u, 19u, 22u, 39u}) EXPECT_FALSE(can_dequantize(number)) << number;
  EXPECT_FALSE(can_dequantize(4));
  EXPECT_EQ(find_ggml_type(4), nullptr);
  EXPECT_STREQ(find_ggml_type(12)->name, "Q4_K");
  EXPECT_EQ(dequantizable_types(),
            "F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, BF16");
}

}  // namespace
}  // namespace spyre::formats
