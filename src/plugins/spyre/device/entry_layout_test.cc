#include "plugins/spyre/device/entry_layout.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "plugins/spyre/device/device.h"
#include "plugins/spyre/device/placement.h"

namespace spyre::device {
namespace {

TEST(EntryLayout, EntriesLieOneAfterAnother) {
  const Layout layout = entry_layout(DType::kF16, {5, 100});
  EXPECT_EQ(layout.device_size, (std::vector<int64_t>{5, 2, 64}));
  EXPECT_EQ(layout.stride_map, (std::vector<int64_t>{100, 64, 1}));
  EXPECT_EQ(layout.stick_dim, 1);
  for (int64_t row = 0; row < 5; ++row) {
    for (const int64_t column : {0, 63, 64, 99}) {
      EXPECT_EQ(layout.offset(std::vector<int64_t>{row, column}), row * 128 + column);
    }
  }
  EXPECT_EQ(Placement::of(layout).strides, (std::vector<int64_t>{128, 64}));
  // The default puts the sticks of one column together.
  EXPECT_EQ(default_layout(DType::kF16, {5, 100}).offset(std::vector<int64_t>{1, 64}), (5 + 1) * 64);
}

TensorSpec entries(int64_t rows, int64_t columns) {
  TensorSpec spec = TensorSpec::plain(DType::kBF16, {rows, columns});
  spec.layout = entry_layout(DType::kBF16, spec.card());
  return spec;
}

// In both kinds of store: what is written to the beginning is in the whole, and nothing else of it changes.
TEST(EntryLayout, TheBeginningOfATensorIsATensor) {
  for (const ExecutionMode mode : {ExecutionMode::kHost, ExecutionMode::kChecked}) {
    SoftwareDevice device({.mode = mode});
    const DeviceTensor whole = device.allocate(entries(7, 100), "test");
    const std::vector<uint16_t> ones(700, 0x3f80), twos(300, 0x4000);
    device.upload(whole, ones.data(), "test");
    const int64_t used = device.memory().used();
    {
      const DeviceTensor some = device.beginning_of(whole, entries(3, 100));
      EXPECT_EQ(device.memory().used(), used);
      EXPECT_EQ(some->card_address, whole->card_address);
      device.upload(some, twos.data(), "test");
    }
    EXPECT_EQ(device.memory().used(), used);
    std::vector<float> got(700);
    device.download(whole, got.data(), "test");
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], i < 300 ? 2.0f : 1.0f) << i;
  }
}

TEST(EntryLayout, OnlyABeginningIsOne) {
  SoftwareDevice device({});
  const DeviceTensor whole = device.allocate(entries(7, 100), "test");
  EXPECT_THROW(device.beginning_of(whole, entries(8, 100)), Error);
  EXPECT_THROW(device.beginning_of(whole, entries(7, 64)), Error);
  EXPECT_THROW(device.beginning_of(whole, TensorSpec::plain(DType::kBF16, {3, 100})), Error);
}

}  // namespace
}  // namespace spyre::device
