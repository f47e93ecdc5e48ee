#include "plugins/spyre/device/axis.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace spyre::device {
namespace {

TEST(Axis, Plain) {
  const Axis axis(576);
  EXPECT_FALSE(axis.padded());
  EXPECT_EQ(axis.card(), 576);
  EXPECT_EQ(axis.to_card(575), 575);
  EXPECT_EQ(axis.to_string(), "576");
}

TEST(Axis, PaddingAtTheEndOfEachUnit) {
  const Axis axis({{3, 64, 128, false}});
  EXPECT_EQ(axis.logical(), 192);
  EXPECT_EQ(axis.card(), 384);
  EXPECT_EQ(axis.to_card(63), 63);
  EXPECT_EQ(axis.to_card(64), 128);
  EXPECT_EQ(axis.to_card(191), 256 + 63);
}

TEST(Axis, PaddingBehindEachHalf) {
  const Axis axis({{12, 64, 128, true}, {3, 64, 128, false}});
  EXPECT_EQ(axis.to_string(), "12x(64->128 halves)+3x(64->128)");
  EXPECT_EQ(axis.to_card(31), 31);
  EXPECT_EQ(axis.to_card(32), 64);
  EXPECT_EQ(axis.to_card(64 + 40), 128 + 64 + 8);
  EXPECT_EQ(axis.to_card(12 * 64 + 40), 12 * 128 + 40);
}

TEST(Axis, EqualPaddingHasOneForm) {
  EXPECT_EQ(Axis({{1, 64, 128, true}, {2, 64, 128, true}}), Axis({{3, 64, 128, true}}));
  EXPECT_EQ(Axis({{4, 64, 64, false}, {1, 10, 10, false}}), Axis(266));
  EXPECT_FALSE(Axis({{2, 64, 128, true}}) == Axis({{2, 64, 128, false}}));
}

TEST(Axis, CardIndicesAscendAndStayInside) {
  const Axis axis({{2, 10, 64, true}, {1, 7, 7, false}, {3, 5, 6, false}});
  const std::vector<int64_t> card = axis.card_indices();
  EXPECT_TRUE(std::is_sorted(card.begin(), card.end()));
  EXPECT_EQ(std::adjacent_find(card.begin(), card.end()), card.end());
  EXPECT_LT(card.back(), axis.card());
  for (int64_t i = 0; i < axis.logical(); ++i) EXPECT_EQ(card[i], axis.to_card(i));
}

TEST(Axis, RefusesWhatIsNoPadding) {
  EXPECT_THROW(Axis({{1, 64, 63, false}}), Error);
  EXPECT_THROW(Axis({{0, 64, 64, false}}), Error);
  EXPECT_THROW(Axis({{1, 63, 128, true}}), Error);
  EXPECT_THROW(Axis(4).to_card(4), Error);
}

}  // namespace
}  // namespace spyre::device
