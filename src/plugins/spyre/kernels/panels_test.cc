#include "plugins/spyre/kernels/panels.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace spyre::kernels {
namespace {

std::vector<uint16_t> counted(int64_t count) {
  std::vector<uint16_t> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), uint16_t{1});
  return out;
}

TEST(PanelLayout, SizesPadKByOrderAndNBySticks) {
  EXPECT_EQ((PanelLayout{DotOrder::kSequential, 577, 100}.bytes()), 2 * 577 * 64 * 2);
  EXPECT_EQ((PanelLayout{DotOrder::kPair, 577, 100}.bytes()), 2 * 578 * 64 * 2);
  EXPECT_EQ((PanelLayout{DotOrder::kTile, 577, 100}.bytes()), 2 * 608 * 64 * 2);
}

TEST(PanelLayout, PlacesElements) {
  EXPECT_EQ((PanelLayout{DotOrder::kSequential, 10, 128}.index(3, 70)), 10 * 64 + 3 * 64 + 6);
  // Pair 1 of column 70: pair row 1, lane 6, the odd half.
  EXPECT_EQ((PanelLayout{DotOrder::kPair, 10, 128}.index(3, 70)), 10 * 64 + 1 * 128 + 6 * 2 + 1);
  EXPECT_EQ((PanelLayout{DotOrder::kTile, 10, 128}.index(3, 70)), 32 * 64 + 1 * 128 + 6 * 2 + 1);
}

TEST(PackPanels, BothSourcesFillEveryElement) {
  for (DotOrder order : {DotOrder::kSequential, DotOrder::kPair, DotOrder::kTile}) {
    for (int64_t k : {1, 2, 7, 8, 9, 31, 32, 33, 70}) {
      for (int64_t n : {1, 3, 8, 60, 64, 65, 130}) {
        const PanelLayout layout{order, k, n};
        const auto w = counted(k * n);
        std::vector<uint16_t> transposed(w.size());
        for (int64_t i = 0; i < k; ++i) {
          for (int64_t j = 0; j < n; ++j)
            transposed[static_cast<size_t>(j * k + i)] = w[static_cast<size_t>(i * n + j)];
        }
        std::vector<uint16_t> want(static_cast<size_t>(layout.elements()), 0);
        for (int64_t i = 0; i < k; ++i) {
          for (int64_t j = 0; j < n; ++j)
            want[static_cast<size_t>(layout.index(i, j))] = w[static_cast<size_t>(i * n + j)];
        }
        std::vector<uint16_t> got(want.size(), 0xdead);
        pack_panels(layout, SourceOrder::kInOut, w.data(), n, 0, n, got.data());
        ASSERT_EQ(got, want) << to_string(order) << " in-out k " << k << " n " << n;
        got.assign(want.size(), 0xdead);
        pack_panels(layout, SourceOrder::kOutIn, transposed.data(), k, 0, n, got.data());
        ASSERT_EQ(got, want) << to_string(order) << " out-in k " << k << " n " << n;
        std::vector<uint16_t> back(w.size());
        unpack_panels(layout, got.data(), 0, n, back.data(), n);
        ASSERT_EQ(back, w);
      }
    }
  }
}

TEST(PackPanels, PartsOfAFusedWeightMeetInsideAPanel) {
  for (DotOrder order : {DotOrder::kSequential, DotOrder::kPair, DotOrder::kTile}) {
    const PanelLayout layout{order, 21, 150};
    const auto w = counted(21 * 150);
    std::vector<uint16_t> whole(static_cast<size_t>(layout.elements()), 0xdead), parts = whole;
    pack_panels(layout, SourceOrder::kInOut, w.data(), 150, 0, 150, whole.data());
    for (auto [first, columns] : {std::pair<int64_t, int64_t>{100, 50}, {0, 37}, {37, 63}}) {
      // Each part comes as a checkpoint's [out, in] with a stride of its own.
      std::vector<uint16_t> part(static_cast<size_t>(columns * 25), 0xbeef);
      for (int64_t n = 0; n < columns; ++n) {
        for (int64_t k = 0; k < 21; ++k) {
          part[static_cast<size_t>(n * 25 + k)] = w[static_cast<size_t>(k * 150 + first + n)];
        }
      }
      pack_panels(layout, SourceOrder::kOutIn, part.data(), 25, first, columns, parts.data());
    }
    ASSERT_EQ(parts, whole) << to_string(order);
  }
}

}  // namespace
}  // namespace spyre::kernels
