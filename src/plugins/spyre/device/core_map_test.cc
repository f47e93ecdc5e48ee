#include "plugins/spyre/device/core_map.h"

#include <gtest/gtest.h>

#include <set>

namespace spyre::device {
namespace {

DeviceOp matmul(std::vector<int64_t> splits) {  // iteration K, M, N
  return {.name = "batchmatmul",
          .inputs = {0, 1},
          .outputs = {2},
          .split_dims = {"K", "0", "1"},
          .extents = {8, 64, 8},
          .splits = std::move(splits),
          .reduced_dim = 0,
          .walks = {{1, 0}, {0, 2}, {1, 2}}};
}

TEST(CoreMap, TheFirstDimensionChangesFastest) {
  const std::vector<int64_t> splits{2, 1, 3};
  EXPECT_EQ(core_count(splits), 6);
  std::vector<std::vector<int64_t>> slices(3);
  for (size_t d = 0; d < 3; ++d) {
    for (int64_t core = 0; core < 6; ++core) slices[d].push_back(slice_of_core(splits, d, core));
  }
  EXPECT_EQ(slices[0], (std::vector<int64_t>{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(slices[1], (std::vector<int64_t>{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(slices[2], (std::vector<int64_t>{0, 0, 1, 1, 2, 2}));
}

TEST(CoreMap, EveryCoreHasAPartOfItsOwn) {
  const DeviceOp op = matmul({2, 4, 4});
  std::set<std::vector<int64_t>> parts;
  for (int64_t core = 0; core < core_count(op.splits); ++core) {
    std::vector<int64_t> part;
    for (size_t d = 0; d < 3; ++d) part.push_back(slice_of_core(op.splits, d, core));
    parts.insert(part);
  }
  EXPECT_EQ(parts.size(), 32u);
}

TEST(CoreMap, PartsOfASumLieOnNeighbours) {
  const DeviceOp op = matmul({4, 2, 4});
  const CoreView out = core_view(op, 2);
  for (int64_t core = 0; core < 32; ++core) {
    EXPECT_EQ(out.has[core], out.has[core / 4 * 4]) << "cores of one sum are four in a row";
  }
}

TEST(CoreMap, ViewsDifferBySplitsAndByCores) {
  const DeviceOp a = matmul({1, 4, 8}), b = matmul({1, 4, 8}), c = matmul({2, 4, 4}), d = matmul({1, 8, 4});
  EXPECT_EQ(core_view(a, 2), core_view(b, 2));
  EXPECT_FALSE(core_view(a, 2) == core_view(d, 2));
  EXPECT_FALSE(core_view(c, 2) == core_view(d, 2));
  // Rows cut alike, but by other cores.
  EXPECT_EQ(core_view(a, 0).slices,
            core_view(c, 2).slices.size() == 2 ? (std::vector<int64_t>{4, 1}) : std::vector<int64_t>());
  EXPECT_FALSE(core_view(a, 0) == core_view(c, 0));
}

}  // namespace
}  // namespace spyre::device
