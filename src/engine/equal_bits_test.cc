// Equal bits on the reference platform (equal_bits.h); tests/engine asks the same of the plugin.
#include "engine/equal_bits.h"

#include <gtest/gtest.h>

#include "platform/cpu_platform.h"
#include "platform/testing/golden.h"

namespace spyre::engine {
namespace {

constexpr int64_t kBlock = 8;

const testing::EqualBits& bits() {
  static const platform::CpuPlatform cpu;
  static const testing::EqualBits equal_bits(
      [](int64_t num_blocks, int64_t budget) {
        return platform::make_instance(cpu, {.model = platform::testing::golden_folders().front(),
                                             .max_model_len = testing::EqualBits::kLengthBlocks * kBlock,
                                             .block_size = kBlock,
                                             .max_num_seqs = 16,
                                             .max_num_batched_tokens = budget,
                                             .num_kv_blocks = num_blocks});
      },
      kBlock);
  return equal_bits;
}

TEST(EqualBits, AsAFullAndAsAPartialPrefixHit) {
  bits().full_and_partial_prefix_hit();
}
TEST(EqualBits, AfterItsBlocksWereEvicted) {
  bits().after_eviction();
}
TEST(EqualBits, AmongFifteenOthersInChunks) {
  bits().among_fifteen_others();
}
TEST(EqualBits, AfterPreemption) {
  bits().after_preemption();
}

}  // namespace
}  // namespace spyre::engine
