#include "formats/safetensors.h"

#include <gtest/gtest.h>

#include "formats/hostile_test_util.h"

namespace spyre::formats {
namespace {

using testing::data_path;

TEST(Safetensors, ReadsWhatTheReferenceLibraryWrites) {
  const auto file = SafetensorsFile::open(data_path("sharded/model-00002-of-00002.safetensors"));
  ASSERT_EQ(file->tensors().size(), 3u);
  const SafetensorsTensor* f64 = file->find("b.f64");
  ASSERT_NE(f64, nullptr);
  EXPECT_EQ(f64->dtype, DType::kF64);
  EXPECT_EQ(f64->shape, (std::vector<int64_t>{4}));
  EXPECT_EQ(f64->bytes, 32u);
  EXPECT_EQ(file->find("b.none")->shape, (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(file->find("b.none")->bytes, 0u);
  EXPECT_EQ(file->find("b.flags")->dtype, DType::kBool);
  EXPECT_EQ(static_cast<int>(file->data(*file->find("b.flags"))[2]), 1);
  EXPECT_EQ(file->find("b"), nullptr);
}

TEST(Safetensors, ReadsAnIndex) {
  const std::string path = data_path("sharded/model.safetensors.index.json");
  const ShardIndex index = parse_shard_index(testing::slurp(path), path);
  ASSERT_EQ(index.files.size(), 2u);
  ASSERT_EQ(index.weight_map.size(), 5u);
  EXPECT_EQ(index.weight_map[0].first, "a.f16");
  EXPECT_EQ(index.files[index.weight_map[0].second], "model-00001-of-00002.safetensors");
  EXPECT_EQ(index.files[index.weight_map[4].second], "model-00002-of-00002.safetensors");
}

}  // namespace
}  // namespace spyre::formats
