#include "engine/kv_cache_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace spyre::engine {
namespace {

using Tokens = std::vector<int32_t>;
using ::testing::ElementsAre;

Tokens upto(int32_t last) {
  Tokens tokens;
  for (int32_t i = 1; i <= last; ++i) tokens.push_back(i);
  return tokens;
}

struct Cache : KvCacheManager {
  explicit Cache(int64_t blocks = 9, bool prefix = true) : KvCacheManager(blocks, 4, prefix) {}
  // A sequence that was computed whole.
  BlockTable computed(const Tokens& tokens, const std::string& salt = "") {
    BlockTable table;
    const Prefix prefix = find_prefix(salt, tokens);
    adopt_prefix(table, salt, tokens, prefix.blocks);
    EXPECT_TRUE(grow(table, std::ssize(tokens)));
    publish(table, salt, tokens);
    return table;
  }
  void compute_and_release(const Tokens& tokens, const std::string& salt = "") {
    BlockTable table = computed(tokens, salt);
    release(table);
  }
  int64_t found(const Tokens& tokens, const std::string& salt = "") const { return find_prefix(salt, tokens).blocks; }
};

TEST(KvCacheManager, HandsOutEveryBlockButTheNullBlock) {
  Cache cache;
  BlockTable table;
  EXPECT_TRUE(cache.grow(table, 32));
  Tokens blocks = table.blocks();
  std::sort(blocks.begin(), blocks.end());
  EXPECT_THAT(blocks, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_FALSE(cache.grow(table, 33));
  EXPECT_EQ(table.size(), 8);
  cache.release(table);
  EXPECT_EQ(cache.available(), 8);
  cache.check({});
}

TEST(KvCacheManager, FindsFullBlocksAndLeavesTheLastToken) {
  Cache cache;
  cache.compute_and_release(upto(11));  // two full blocks
  EXPECT_EQ(cache.cached(), 2);
  EXPECT_EQ(cache.available(), 8);
  EXPECT_EQ(cache.found(upto(11)), 2);
  EXPECT_EQ(cache.found(upto(9)), 2);
  EXPECT_EQ(cache.found(upto(8)), 1);  // the eighth must be computed
  EXPECT_EQ(cache.found(upto(4)), 0);
  EXPECT_EQ(cache.found({1, 2, 3, 4, 5, 6, 7, 9, 10}), 1);
  EXPECT_EQ(cache.found({2, 2, 3, 4, 5, 6, 7, 8, 9}), 0);
  EXPECT_EQ(cache.found({5, 6, 7, 8, 9}), 0);  // a block is found behind what stood before it only
  EXPECT_EQ(cache.found(upto(11), "salt"), 0);
}

TEST(KvCacheManager, SharesAPrefixByReference) {
  Cache cache;
  BlockTable a = cache.computed(upto(10)), b = cache.computed(upto(12));
  EXPECT_EQ(a.blocks()[0], b.blocks()[0]);
  EXPECT_EQ(a.blocks()[1], b.blocks()[1]);
  EXPECT_NE(a.blocks()[2], b.blocks()[2]);
  Tokens held = a.blocks();
  held.insert(held.end(), b.blocks().begin(), b.blocks().end());
  cache.check(held);
  EXPECT_EQ(cache.find_prefix("", upto(12)).idle, 0);
  cache.release(a);
  cache.check(b.blocks());
  EXPECT_EQ(cache.found(upto(12)), 2);
  cache.release(b);
  cache.check({});
  EXPECT_EQ(cache.find_prefix("", upto(12)).idle, 2);
}

TEST(KvCacheManager, EvictsTheLeastRecentlyUsedAndTailsFirst) {
  Cache cache;  // 8 blocks
  const Tokens a = upto(13), b{50, 51, 52, 53, 54, 55, 56, 57, 58};
  cache.compute_and_release(a);  // 3 full blocks
  cache.compute_and_release(b);  // 2
  EXPECT_EQ(cache.found(a), 3);
  EXPECT_EQ(cache.found(b), 2);
  BlockTable big;
  EXPECT_TRUE(cache.grow(big, 16));  // 3 free ones and one that is cached: the tail of a
  EXPECT_EQ(cache.found(a), 2);
  EXPECT_EQ(cache.found(b), 2);
  BlockTable again;
  cache.adopt_prefix(again, "", a, 2);  // used now: b is older
  cache.release(again);
  EXPECT_TRUE(cache.grow(big, 24));
  EXPECT_EQ(cache.found(a), 2);
  EXPECT_EQ(cache.found(b), 0);
  cache.release(big);
  cache.check({});
}

// The first block went, its child stayed: computed anew, the prefix is whole again.
TEST(KvCacheManager, AHoleInAPrefixCanBeFilled) {
  Cache cache(6);  // 5 blocks
  BlockTable parent = cache.computed(upto(4));
  BlockTable twin;  // computed the same at the same time, and went on
  EXPECT_TRUE(cache.grow(twin, 8));
  cache.publish(twin, "", upto(8));
  cache.release(parent);  // the block that is known for tokens 1 to 4
  BlockTable other;
  EXPECT_TRUE(cache.grow(other, 12));  // takes it
  EXPECT_EQ(cache.found(upto(9)), 0);
  cache.release(other);
  BlockTable anew = cache.computed(upto(4));
  EXPECT_EQ(cache.found(upto(9)), 2);
  cache.release(anew);
  cache.release(twin);
  cache.check({});
}

TEST(KvCacheManager, WithoutPrefixCachingNothingIsFound) {
  Cache cache(9, false);
  cache.compute_and_release(upto(12));
  EXPECT_EQ(cache.found(upto(12)), 0);
  EXPECT_EQ(cache.cached(), 0);
  cache.check({});
}

TEST(KvCacheManager, BooksThatDoNotBalanceAreNoticed) {
  Cache cache;
  BlockTable table = cache.computed(upto(5));
  EXPECT_THROW(cache.check({}), Error);
  cache.release(table);
  EXPECT_THROW(cache.check(Tokens{1}), Error);
}

}  // namespace
}  // namespace spyre::engine
