#include "plugins/spyre/worker/weight_store.h"

#include <gtest/gtest.h>

#include <cstring>

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

nn::HostTensor numbered(DType dtype, const std::vector<int64_t>& shape) {
  nn::HostTensor weights = nn::HostTensor::allocate(dtype, shape);
  for (int64_t i = 0; i < weights.elements(); ++i) weights.as<uint16_t>()[i] = static_cast<uint16_t>(i * 40503 + 7);
  return weights;
}

nn::HostTensor rows_of(const nn::HostTensor& whole, int64_t first, int64_t rows) {
  nn::HostTensor slice = nn::HostTensor::allocate(whole.dtype, {rows, whole.shape[1]});
  std::memcpy(slice.data.get(), whole.as<uint16_t>() + first * whole.shape[1], slice.bytes());
  return slice;
}

std::vector<std::byte> bytes_of(const WeightStore& store, const nn::Parameter& parameter) {
  const device::HostBuffer& memory = store.tensor(parameter)->memory;
  return {memory.data(), memory.data() + memory.size()};
}

// A linear layer's weight (transposed by the layer) and a tied pair, whole and in slices: the same bytes and accounts.
TEST(WeightStore, SlicesGiveTheBytesOfTheWhole) {
  const int64_t out = 150, in = 37;
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    nn::Parameter linear{.name = "proj.weight",
                         .type = graph::Type::tensor(dtype, std::vector<int64_t>{in, out}),
                         .loaded_shape = {out, in},
                         .transposed = true};
    nn::Parameter table{.name = "embed_tokens.weight",
                        .type = graph::Type::tensor(dtype, std::vector<int64_t>{out, in}),
                        .loaded_shape = {out, in}};
    nn::Parameter head = linear;
    head.name = "lm_head.weight";
    head.alias = &table;
    const auto rows_spec = device::TensorSpec::plain(dtype, {out, in});
    const auto columns_spec = device::TensorSpec::plain(dtype, {in, out});
    const std::map<const nn::Parameter*, ParameterUse> uses = {{&linear, {columns_spec, device::HostForm::kPanels}},
                                                               {&table, {rows_spec, device::HostForm::kGatherTable}},
                                                               {&head, {columns_spec, device::HostForm::kPanels}}};
    device::SoftwareDevice a({}), b({});
    WeightStore whole(a, uses), sliced(b, uses);
    const nn::HostTensor weights = numbered(dtype, {out, in});
    for (WeightStore* store : {&whole, &sliced}) store->begin({&linear, &table, &head});
    whole.accept(linear, weights.transposed());
    whole.accept(table, weights);
    for (const nn::Parameter* parameter : {&linear, &table}) {
      ASSERT_GT(sliced.slice_rows(*parameter), 0);
      const int64_t cuts[] = {0, 32, 96, out};
      for (int i : {2, 0, 1}) {
        const nn::HostTensor slice = rows_of(weights, cuts[i], cuts[i + 1] - cuts[i]);
        sliced.accept_slice(*parameter, cuts[i], parameter->transposed ? slice.transposed() : slice);
      }
    }
    EXPECT_EQ(bytes_of(whole, linear), bytes_of(sliced, linear));
    EXPECT_EQ(bytes_of(whole, head), bytes_of(sliced, head));
    EXPECT_EQ(whole.host_bytes(), sliced.host_bytes());
    EXPECT_EQ(b.transfers().to_device.at("weights").card_bytes,
              2 * columns_spec.card_bytes()  // the table reads the head's panels
    );
  }
}

}  // namespace
}  // namespace spyre::worker
