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

constexpr MemoryRoom kRoom{.available = 100'000, .used = 20'000};

int64_t blocks(const EngineConfig& config) {
  return size_kv_cache(config, kSpec, kRoom).blocks;
}

std::string refusal(const EngineConfig& config) {
  try {
    size_kv_cache(config, kSpec, kRoom);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(SizeKvCache, OneSequenceAndTheNullBlockByDefault) {
  EXPECT_EQ(blocks({.max_model_len = 1}), 2);
  EXPECT_EQ(blocks({.max_model_len = 16}), 2);
  EXPECT_EQ(blocks({.max_model_len = 17}), 3);
  EXPECT_EQ(blocks({.max_model_len = 2048}), 129);
}

TEST(SizeKvCache, BytesAreDividedDown) {
  EXPECT_EQ(blocks({.max_model_len = 17, .kv_cache_bytes = 3999}), 3);
  EXPECT_EQ(blocks({.max_model_len = 17, .kv_cache_bytes = 50000}), 50);
  const std::string message = refusal({.max_model_len = 17, .kv_cache_bytes = 2999});
  for (const char* part : {"2999 / 1000 bytes per block = 2 blocks", "max_model_len 17 needs 2 blocks", "3000 bytes"}) {
    EXPECT_THAT(message, HasSubstr(part));
  }
}

TEST(SizeKvCache, GivenCountWins) {
  EXPECT_EQ(blocks({.max_model_len = 64, .num_kv_blocks = 7, .kv_cache_bytes = 10}), 7);
  EXPECT_THAT(refusal({.max_model_len = 64, .num_kv_blocks = 1}), HasSubstr("num_kv_blocks is 1"));
}

// The share is of all that the process may hold: 0.5 x (100000 + 20000) - 20000.
TEST(SizeKvCache, AShareOfMemory) {
  EXPECT_EQ(blocks({.max_model_len = 17, .memory_utilization = 0.5}), 40);
  EXPECT_EQ(blocks({.max_model_len = 17, .kv_cache_bytes = 5000, .memory_utilization = 0.5}), 5);
  EXPECT_THAT(size_kv_cache({.max_model_len = 17, .memory_utilization = 0.5}, kSpec, kRoom).arithmetic,
              HasSubstr("40 blocks of 16 tokens x 1000 bytes"));
  EXPECT_THAT(refusal({.max_model_len = 17, .memory_utilization = 0.1}), HasSubstr("= 0 blocks"));
  EXPECT_THROW(size_kv_cache({.max_model_len = 17, .memory_utilization = 0.5}, kSpec, {}), Error);
}

TEST(SizeKvCache, ServingHoldsItsSequencesAsFarAsMemoryGoes) {
  EXPECT_EQ(blocks({.max_model_len = 64, .max_num_seqs = 8, .serving = true}), 33);
  EXPECT_EQ(blocks({.max_model_len = 64, .max_num_seqs = 100, .serving = true}), 50);     // half of 100000 bytes
  EXPECT_EQ(blocks({.max_model_len = 1600, .max_num_seqs = 100, .serving = true}), 101);  // one sequence at least
  EXPECT_EQ(blocks({.max_model_len = 64, .max_num_seqs = 8, .memory_utilization = 0.5, .serving = true}), 40);
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
