#include "plugins/spyre/worker/weight_store.h"

#include <gtest/gtest.h>

#include "base/half.h"

namespace spyre::worker {
namespace {

constexpr int64_t kSize = 64;

nn::Parameter square(const std::string& name) {
  const std::vector<int64_t> shape{kSize, kSize};
  return {.name = name, .type = graph::Type::tensor(DType::kF16, shape), .loaded_shape = shape};
}

// A tied head of a model with as many tokens as hidden units: the shapes do not tell that the head is transposed.
TEST(WeightStore, ASquareTiedHeadIsTransposed) {
  const nn::Parameter embedding = square("embed_tokens.weight");
  nn::Parameter head = square("lm_head.weight");
  head.alias = &embedding;
  head.transposed = true;
  nn::HostTensor weights = nn::HostTensor::allocate(DType::kF16, {kSize, kSize});
  for (int64_t i = 0; i < kSize * kSize; ++i) weights.as<uint16_t>()[i] = f32_to_f16(static_cast<float>(i % 2039));

  const auto spec = device::TensorSpec::plain(DType::kF16, {kSize, kSize});
  device::SoftwareDevice device({.mode = device::ExecutionMode::kChecked});
  WeightStore store(device,
                    {{&embedding, {spec, device::HostForm::kRowMajor}}, {&head, {spec, device::HostForm::kPanels}}});
  store.begin({&embedding, &head});
  store.accept(embedding, weights);
  std::vector<float> table(kSize * kSize), transposed(kSize * kSize);
  device.download(store.tensor(embedding), table.data(), "test");
  device.download(store.tensor(head), transposed.data(), "test");
  for (int64_t r = 0; r < kSize; ++r) {
    for (int64_t c = 0; c < kSize; ++c) {
      ASSERT_EQ(table[r * kSize + c], static_cast<float>((r * kSize + c) % 2039));
      ASSERT_EQ(transposed[c * kSize + r], table[r * kSize + c]) << r << ", " << c;
    }
  }
}

}  // namespace
}  // namespace spyre::worker
