#include "plugins/spyre/kernels/kv_pages.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

#include "base/error.h"

namespace spyre::kernels {
namespace {

using Words = std::vector<uint16_t>;

Words counted(int64_t n, int first) {
  Words w(n);
  std::iota(w.begin(), w.end(), static_cast<uint16_t>(first));
  return w;
}

TEST(KvPages, F16KeysAreTransposedAndValuesPlain) {
  const KvPageLayout layout(DType::kF16, DotOrder::kSequential, 128, 2, 80);
  EXPECT_EQ(layout.page_words(), 2 * 2 * (80 * 64 + 2 * 64 * 64));
  EXPECT_EQ(layout.page_bytes(), 2 * layout.page_words());
  Words page(layout.page_words(), 0);
  const Words k = counted(80, 1), v = counted(80, 1000);
  layout.write(page.data(), 64 + 5, 1, k.data(), v.data());
  const KvGroup group = layout.group(page.data(), 1, 1);
  EXPECT_EQ(group.k - page.data(), 3 * (80 * 64 + 2 * 64 * 64));  // the last of [head][group]
  for (int64_t d = 0; d < 80; ++d) {
    EXPECT_EQ(group.k[d * 64 + 5], k[d]);
    EXPECT_EQ(group.v[d / 64 * 4096 + 5 * 64 + d % 64], v[d]);
  }
}

TEST(KvPages, Bf16KeysAndValuesLieInPairs) {
  for (DotOrder order : {DotOrder::kPair, DotOrder::kTile}) {
    const KvPageLayout layout(DType::kBF16, order, 64, 1, 33);
    EXPECT_EQ(layout.page_words(), (order == DotOrder::kPair ? 34 : 64) * 64 + 64 * 64);
    Words page(layout.page_words(), 0);
    const Words k = counted(33, 1), v = counted(33, 1000);
    layout.write(page.data(), 7, 0, k.data(), v.data());
    const KvGroup group = layout.group(page.data(), 0, 0);
    for (int64_t d = 0; d < 33; ++d) {
      EXPECT_EQ(group.k[d / 2 * 128 + 7 * 2 + d % 2], k[d]);
      EXPECT_EQ(group.v[7 / 2 * 128 + d * 2 + 7 % 2], v[d]);
    }
  }
}

TEST(KvPages, WhatIsWrittenIsReadBackAndPaddingStaysZero) {
  for (auto [dtype, order] : {std::pair{DType::kF16, DotOrder::kSequential},
                              {DType::kBF16, DotOrder::kPair},
                              {DType::kBF16, DotOrder::kTile}}) {
    for (int64_t d : {1, 16, 63, 64, 65, 128}) {
      const int64_t slots = 128, heads = 3;
      const KvPageLayout layout(dtype, order, slots, heads, d);
      Words page(layout.page_words(), 0);
      const auto key = [&](int64_t slot, int64_t head) {
        return counted(d, static_cast<int>(1 + slot * 7 + head * 5000));
      };
      for (int64_t slot = 0; slot < slots; ++slot) {
        for (int64_t head = 0; head < heads; ++head) {
          const Words k = key(slot, head), v = key(slot, head + 4);
          layout.write(page.data(), slot, head, k.data(), v.data());
        }
      }
      Words k(d), v(d);
      for (int64_t slot = 0; slot < slots; ++slot) {
        for (int64_t head = 0; head < heads; ++head) {
          layout.read(page.data(), slot, head, k.data(), v.data());
          ASSERT_EQ(k, key(slot, head));
          ASSERT_EQ(v, key(slot, head + 4));
        }
      }
      int64_t written = 0;
      for (uint16_t w : page) written += w != 0;
      EXPECT_EQ(written, slots * heads * d * 2);  // no value above is 0
    }
  }
}

// Random runs, with strides between the tokens and a stranger's words in the page, against one token at a time.
TEST(KvPages, RunsOfTokensAreWrittenAsOneByOne) {
  std::mt19937 random(3);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (auto [dtype, order] : {std::pair{DType::kF16, DotOrder::kSequential},
                              {DType::kBF16, DotOrder::kPair},
                              {DType::kBF16, DotOrder::kTile}}) {
    for (int64_t d : {1, 7, 8, 33, 64, 80, 127, 128, 200}) {
      const int64_t slots = 192, heads = 2;
      const KvPageLayout layout(dtype, order, slots, heads, d);
      for (int round = 0; round < 30; ++round) {
        const int64_t slot = below(slots), count = round % 3 == 0 ? 1 : 1 + below(slots - slot), head = below(heads);
        const int64_t k_stride = d + below(20), v_stride = d + below(20);
        const Words k = counted(count * k_stride, 1 + round), v = counted(count * v_stride, 30000 + round);
        Words want = counted(layout.page_words(), 7), got = want;
        for (int64_t i = 0; i < count; ++i)
          layout.write(want.data(), slot + i, head, &k[i * k_stride], &v[i * v_stride]);
        layout.write_tokens(got.data(), slot, count, head, k.data(), k_stride, v.data(), v_stride);
        ASSERT_EQ(got, want) << to_string(order) << " d " << d << ": " << count << " tokens from slot " << slot;
      }
    }
  }
}

TEST(KvPages, RefusesWhatHasNoLayout) {
  EXPECT_THROW(KvPageLayout(DType::kF16, DotOrder::kSequential, 96, 1, 64), Error);
  EXPECT_THROW(KvPageLayout(DType::kF16, DotOrder::kSequential, 0, 1, 64), Error);
  EXPECT_THROW(KvPageLayout(DType::kF16, DotOrder::kSequential, 64, 0, 64), Error);
  EXPECT_THROW(KvPageLayout(DType::kF16, DotOrder::kSequential, 64, 1, 0), Error);
  EXPECT_THROW(KvPageLayout(DType::kF16, DotOrder::kSequential, 64, 1, kMaxHeadDim + 1), Error);
  EXPECT_THROW(KvPageLayout(DType::kF16, DotOrder::kPair, 64, 1, 64), Error);
  EXPECT_THROW(KvPageLayout(DType::kBF16, DotOrder::kSequential, 64, 1, 64), Error);
  EXPECT_THROW(KvPageLayout(DType::kF32, DotOrder::kSequential, 64, 1, 64), Error);
}

}  // namespace
}  // namespace spyre::kernels
