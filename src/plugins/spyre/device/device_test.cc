#include "plugins/spyre/device/device.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace spyre::device {
namespace {

// The team shares the copy of a large tensor: every element arrives, at sizes that do not divide by the threads.
TEST(Download, LargeTensorsArriveWhole) {
  for (const int threads : {1, 2, 3}) {
    SoftwareDevice device({.threads = threads});
    for (const int64_t rows : {int64_t{2}, int64_t{1311}, int64_t{1500}}) {
      const int64_t width = 403;
      const DeviceTensor tensor = device.allocate(TensorSpec::plain(DType::kF32, {1500, width}), "test");
      std::vector<float> values(static_cast<size_t>(1500 * width));
      std::iota(values.begin(), values.end(), 1.0f);
      device.upload(tensor, values.data(), "test");
      std::vector<float> got(static_cast<size_t>(rows * width) + 1, -1.0f);
      device.download(tensor, got.data(), "test", rows);
      values.resize(static_cast<size_t>(rows * width));
      EXPECT_EQ(got.back(), -1.0f);
      got.pop_back();
      EXPECT_EQ(got, values) << rows << " rows, " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace spyre::device
