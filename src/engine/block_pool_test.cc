#include "engine/block_pool.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace spyre::engine {
namespace {

TEST(BlockPool, HandsOutEveryBlockOnceAndNeverTheNullBlock) {
  BlockPool pool(6);
  EXPECT_EQ(pool.usable(), 5);
  std::set<int32_t> blocks;
  for (int i = 0; i < 5; ++i) blocks.insert(pool.take());
  EXPECT_EQ(blocks, (std::set<int32_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(pool.available(), 0);
  try {
    pool.take();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_STREQ(error.what(), "all 5 KV blocks are in use");
  }
}

TEST(BlockPool, WrongReturnsAreOurBug) {
  BlockPool pool(4);
  const int32_t block = pool.take();
  pool.give_back(block);
  EXPECT_THROW(pool.give_back(block), Error);
  EXPECT_THROW(pool.give_back(0), Error);
  EXPECT_THROW(pool.give_back(4), Error);
  EXPECT_THROW(pool.give_back(-1), Error);
  EXPECT_EQ(pool.available(), 3);
}

TEST(BlockPool, AnyOrderOfTakingAndGivingBackKeepsTheCount) {
  BlockPool pool(32);
  std::mt19937 engine(1);
  std::set<int32_t> taken;
  for (int i = 0; i < 2000; ++i) {
    if (pool.available() > 0 && (taken.empty() || engine() % 2 == 0)) {
      const int32_t block = pool.take();
      ASSERT_TRUE(block > 0 && block < 32);
      ASSERT_TRUE(taken.insert(block).second) << block;
    } else {
      const auto it = std::next(taken.begin(), engine() % taken.size());
      pool.give_back(*it);
      taken.erase(it);
    }
    ASSERT_EQ(pool.available(), 31 - static_cast<int64_t>(taken.size()));
  }
}

}  // namespace
}  // namespace spyre::engine
