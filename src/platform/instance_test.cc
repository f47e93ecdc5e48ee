#include "platform/instance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "platform/cpu_platform.h"
#include "platform/testing/golden.h"

namespace spyre::platform {
namespace {

using ::testing::HasSubstr;

constexpr runner::KvCacheSpec kSpec{.block_size = 16, .bytes_per_block = 1000};

std::string refusal(const EngineConfig& config) {
  try {
    count_kv_blocks(config, kSpec);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(CountKvBlocks, OneSequenceAndTheNullBlockByDefault) {
  EXPECT_EQ(count_kv_blocks({.max_model_len = 1}, kSpec), 2);
  EXPECT_EQ(count_kv_blocks({.max_model_len = 16}, kSpec), 2);
  EXPECT_EQ(count_kv_blocks({.max_model_len = 17}, kSpec), 3);
  EXPECT_EQ(count_kv_blocks({.max_model_len = 2048}, kSpec), 129);
}

TEST(CountKvBlocks, BytesAreDividedDown) {
  EXPECT_EQ(count_kv_blocks({.max_model_len = 17, .kv_cache_bytes = 3999}, kSpec), 3);
  EXPECT_EQ(count_kv_blocks({.max_model_len = 17, .kv_cache_bytes = 50000}, kSpec), 50);
  const std::string message = refusal({.max_model_len = 17, .kv_cache_bytes = 2999});
  for (const char* part : {"2999 / 1000 bytes per block = 2 blocks", "max_model_len 17 needs 2 blocks", "3000 bytes"}) {
    EXPECT_THAT(message, HasSubstr(part));
  }
}

TEST(CountKvBlocks, GivenCountWins) {
  EXPECT_EQ(count_kv_blocks({.max_model_len = 64, .num_kv_blocks = 7, .kv_cache_bytes = 10}, kSpec), 7);
  EXPECT_THAT(refusal({.max_model_len = 64, .num_kv_blocks = 1}), HasSubstr("num_kv_blocks is 1"));
}

TEST(MakeInstance, GoesFromAPathToAWarmWorker) {
  const Instance instance = make_instance(CpuPlatform(), {.model = testing::golden_folders().front()});
  EXPECT_EQ(instance.config.dtype, DType::kF32);
  EXPECT_EQ(instance.config.block_size, 16);
  EXPECT_EQ(instance.num_kv_blocks, *instance.config.max_model_len / 16 + 1);
  EXPECT_EQ(instance.worker->vocab_size(), instance.checkpoint->config().vocab_size);
}

// More blocks than memory, slots or 64 bits of bytes can hold: refused with the number before anything is taken.
TEST(MakeInstance, AbsurdNumbersOfKvBlocksAreRefused) {
  for (const int64_t blocks : {int64_t{1} << 31, int64_t{1} << 40, int64_t{1} << 62}) {
    try {
      make_instance(CpuPlatform(),
                    {.model = testing::golden_folders().front(), .block_size = 1, .num_kv_blocks = blocks});
      FAIL() << blocks;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::to_string(blocks)));
      EXPECT_NE(error.code(), ErrorCode::kInternal) << error.what();
    }
  }
}

TEST(MakeInstance, MissingModelIsNamed) {
  try {
    make_instance(CpuPlatform(), {.model = "/no/such/model"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_THAT(error.what(), HasSubstr("/no/such/model"));
  }
}

TEST(BuildModel, WantsACheckedConfig) {
  EXPECT_THROW(build_model(CpuPlatform(), {.max_model_len = 5}, {}), Error);
  EXPECT_THROW(build_model(CpuPlatform(), {.dtype = DType::kF32}, {}), Error);
}

}  // namespace
}  // namespace spyre::platform
