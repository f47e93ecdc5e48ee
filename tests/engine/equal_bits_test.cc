// Equal bits on the Spyre platform, as the plugin is shipped (src/engine/equal_bits.h).
#include "engine/equal_bits.h"

#include <gtest/gtest.h>

#include "platform/plugin.h"

namespace spyre::engine {
namespace {

constexpr int64_t kBlock = 64;

struct Kind {
  const char* dtype;
  const char* order;
};

class SpyreEqualBits : public ::testing::TestWithParam<Kind> {
 protected:
  SpyreEqualBits() : registry_(platform::PlatformRegistry::discover({SPYRE_PLUGINS})) {}
  testing::EqualBits bits() const {
    return testing::EqualBits(
        [this](int64_t num_blocks, int64_t budget) {
          return platform::make_instance(registry_.get("spyre"),
                                         {.model = std::string(SPYRE_GOLDEN_DATA) + "/llama_gqa64",
                                          .dtype = parse_dtype(GetParam().dtype),
                                          .max_model_len = testing::EqualBits::kLengthBlocks * kBlock,
                                          .block_size = kBlock,
                                          .max_num_seqs = 16,
                                          .max_num_batched_tokens = budget,
                                          .num_kv_blocks = num_blocks,
                                          .order = GetParam().order});
        },
        kBlock);
  }
  platform::PlatformRegistry registry_;
};

TEST_P(SpyreEqualBits, WhateverStandsBesideAndInTheCache) {
  const testing::EqualBits equal_bits = bits();
  equal_bits.full_and_partial_prefix_hit();
  equal_bits.after_eviction();
  equal_bits.among_fifteen_others();
  equal_bits.after_preemption();
}

INSTANTIATE_TEST_SUITE_P(Types, SpyreEqualBits,
                         ::testing::Values(Kind{"float16", "auto"}, Kind{"bfloat16", "pair"}, Kind{"bfloat16", "tile"}),
                         [](const auto& info) { return std::string(info.param.dtype) + "_" + info.param.order; });

}  // namespace
}  // namespace spyre::engine
