#include "plugins/spyre/attention/kv_layout.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "plugins/spyre/device/placement.h"

namespace spyre::attention {
namespace {

using device::Axis;
using device::AxisSegment;
using device::Placement;
using device::TensorSpec;

// Heads of 64 elements that are 128 wide on the card, as rotary ones are.
const Axis kHead(std::vector<AxisSegment>{{1, 64, 128, true}});

TEST(KvLayout, TokensOrHeadsAreOutermostInAPage) {
  const TensorSpec tokens = kv_spec(KvLayout::kTokenMajor, DType::kF16, 10, 64, Axis(3), kHead);
  EXPECT_EQ(tokens.layout.device_size, (std::vector<int64_t>{640, 3, 2, 64}));
  EXPECT_EQ(kv_layout_of(tokens), KvLayout::kTokenMajor);
  const TensorSpec heads = kv_spec(KvLayout::kHeadMajor, DType::kF16, 10, 64, Axis(3), kHead);
  EXPECT_EQ(heads.layout.device_size, (std::vector<int64_t>{10, 3, 64, 2, 64}));
  EXPECT_EQ(kv_layout_of(heads), KvLayout::kHeadMajor);
  EXPECT_EQ(tokens.card_bytes(), heads.card_bytes());
}

// Row r of a head-major cache seen as rows is its r-th run of one head, and each (slot, head) has a row of its own.
TEST(KvLayout, AWriteRowIsWhereTheHeadLies) {
  constexpr int64_t kBlocks = 5, kBlockSize = 64, kHeads = 3;
  const TensorSpec spec = kv_spec(KvLayout::kHeadMajor, DType::kF16, kBlocks, kBlockSize, Axis(kHeads), kHead);
  std::set<int64_t> rows;
  for (int64_t slot = 0; slot < kBlocks * kBlockSize; ++slot) {
    for (int64_t head = 0; head < kHeads; ++head) {
      const int64_t row = kv_write_row(slot, head, kHeads, kBlockSize);
      rows.insert(row);
      const int64_t at[] = {slot / kBlockSize, head, slot % kBlockSize, 0};
      EXPECT_EQ(row * kHead.card(), spec.layout.offset(at)) << "slot " << slot << ", head " << head;
    }
  }
  EXPECT_EQ(std::ssize(rows), kBlocks * kBlockSize * kHeads);
  EXPECT_EQ(*rows.rbegin(), kBlocks * kBlockSize * kHeads - 1);
  EXPECT_EQ(kv_write_row(-1, 2, kHeads, kBlockSize), -1);
}

// The heads of a token lie a block apart, the tokens of a head side by side.
TEST(KvLayout, HowFarNeighboursAre) {
  EXPECT_EQ(kv_write_row(70, 1, 8, 64) - kv_write_row(70, 0, 8, 64), 64);
  EXPECT_EQ(kv_write_row(71, 5, 8, 64) - kv_write_row(70, 5, 8, 64), 1);
  const TensorSpec spec = kv_spec(KvLayout::kTokenMajor, DType::kF16, 4, 64, Axis(8), kHead);
  const Placement at = Placement::of(spec.layout);
  EXPECT_EQ(at.step(1, 1), kHead.card());
  EXPECT_EQ(at.step(0, 1), 8 * kHead.card());
}

}  // namespace
}  // namespace spyre::attention
