#include "plugins/spyre/attention/buckets.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace spyre::attention {
namespace {

using Ladder = std::vector<int64_t>;

TEST(Bucketer, DefaultLaddersAreTheOriginals) {
  const Bucketer b({.block_size = 128, .max_model_len = 8192, .max_num_batched_tokens = 512});
  EXPECT_EQ(b.query_ladder(), (Ladder{1, 512}));
  EXPECT_EQ(b.block_ladder(), (Ladder{1, 2, 4, 8, 16, 32, 64}));
  EXPECT_EQ(b.all_variants().size(), 14u);  // 7 x 2
}

TEST(Bucketer, LaddersStartAtPowersOfTwoAndEndAtTheLimit) {
  const Bucketer odd({.block_size = 192, .max_model_len = 3000, .max_num_batched_tokens = 300});
  EXPECT_EQ(odd.block_ladder(), (Ladder{2, 3, 6, 11, 16}));  // 256, 512, 1024, 2048, 3000 keys
  EXPECT_EQ(odd.query_ladder(), (Ladder{1, 300}));
  const Bucketer wide({.block_size = 128, .max_model_len = 4096, .max_num_batched_tokens = 2048});
  EXPECT_EQ(wide.query_ladder(), (Ladder{1, 512, 1024, 1536, 2048}));
}

TEST(Bucketer, GivenLaddersAreSortedCutAndCompleted) {
  const Bucketer b({.block_size = 64,
                    .max_model_len = 1000,
                    .max_num_batched_tokens = 128,
                    .kv_buckets = {512, 128, 128, 5000},
                    .query_buckets = {64, 4, 999}});
  EXPECT_EQ(b.query_ladder(), (Ladder{4, 64, 128}));
  EXPECT_EQ(b.block_ladder(), (Ladder{2, 8, 16}));
  EXPECT_THROW(Bucketer({.block_size = 64, .max_model_len = 1000, .max_num_batched_tokens = 128, .kv_buckets = {0}}),
               Error);
}

TEST(Bucketer, EveryLengthLandsOnARecordedVariant) {
  const Bucketer b({.block_size = 128, .max_model_len = 2048, .max_num_batched_tokens = 512});
  const std::vector<Variant> all = b.all_variants();
  for (int64_t query = 1; query <= 512; query += 7) {
    for (int64_t keys = query; keys <= 2048; keys += 13) {
      const Variant v = b.variant(query, (keys + 127) / 128);
      EXPECT_GE(v.query, query);
      EXPECT_GE(v.blocks * 128, keys);
      EXPECT_NE(std::find(all.begin(), all.end(), v), all.end()) << query << " rows, " << keys << " keys";
    }
  }
}

TEST(Bucketer, BatchedDecodeStartsAtFourSequences) {
  const auto bucketer = [](int64_t sequences) {
    return Bucketer(
        {.block_size = 128, .max_model_len = 2048, .max_num_batched_tokens = 512, .max_num_seqs = sequences});
  };
  EXPECT_EQ(bucketer(3).sequence_ladder(), Ladder());
  EXPECT_EQ(bucketer(4).sequence_ladder(), (Ladder{4}));  // the original's default
  EXPECT_EQ(bucketer(24).sequence_ladder(), (Ladder{4, 8, 16, 24}));
  EXPECT_EQ(bucketer(256).sequence_ladder(), (Ladder{4, 8, 16, 32, 64, 128, 256}));
  EXPECT_EQ(bucketer(4).all_variants().size(), 10u + 5u);
  EXPECT_FALSE(bucketer(3).batched_variant(3, 1).has_value());
  EXPECT_FALSE(bucketer(24).batched_variant(3, 1).has_value());
  EXPECT_EQ(bucketer(24).batched_variant(17, 3), (Variant{.query = 1, .blocks = 4, .sequences = 24}));
}

TEST(Bucketer, EveryBatchedDecodeLandsOnARecordedVariant) {
  const Bucketer b({.block_size = 128, .max_model_len = 3000, .max_num_batched_tokens = 512, .max_num_seqs = 100});
  const std::vector<Variant> all = b.all_variants();
  for (int64_t sequences = 4; sequences <= 100; ++sequences) {
    for (int64_t blocks = 1; blocks <= 24; ++blocks) {
      const std::optional<Variant> v = b.batched_variant(sequences, blocks);
      ASSERT_TRUE(v.has_value());
      EXPECT_GE(v->sequences, sequences);
      EXPECT_GE(v->blocks, blocks);
      EXPECT_NE(std::find(all.begin(), all.end(), *v), all.end()) << sequences << " sequences, " << blocks << " blocks";
    }
  }
}

TEST(TokenLadder, IsTheOriginalsUnlessGiven) {
  EXPECT_EQ(token_ladder(2048, 32, {}), (Ladder{1, 2, 4, 8, 16, 32, 512, 2048}));
  EXPECT_EQ(token_ladder(512, 4, {}), (Ladder{1, 2, 4, 512}));
  EXPECT_EQ(token_ladder(100, 4, {64, 8, 500}), (Ladder{8, 64, 100}));
}

TEST(FineLadder, PadsAFifthAtMost) {
  EXPECT_EQ(fine_ladder(40), (Ladder{1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40}));
  EXPECT_EQ(fine_ladder(1), (Ladder{1}));
  EXPECT_EQ(fine_ladder(27), (Ladder{1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 27}));
  const Ladder ladder = fine_ladder(8192);
  EXPECT_LE(ladder.size(), kMaxTokenBuckets);
  for (int64_t n = 1; n <= 8192; ++n) {
    const int64_t bucket = *round_up_in(ladder, n);
    ASSERT_LE(5 * (bucket - n), bucket) << n << " in " << bucket;
  }
}

TEST(TokenLadder, IsNoLongerThanCanBeCompiled) {
  Ladder all;
  for (int64_t t = 1; t <= 128; ++t) all.push_back(t);
  EXPECT_EQ(token_ladder(128, 4, all), all);
  EXPECT_THROW(token_ladder(129, 4, all), Error);  // the budget is one more
  all.insert(all.end(), 1000, 7);                  // repeated entries do not count
  EXPECT_EQ(token_ladder(128, 4, all).size(), 128u);
}

}  // namespace
}  // namespace spyre::attention
