#include "plugins/spyre/device/card_transfer.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/half.h"
#include "plugins/spyre/device/dma.h"

namespace spyre::device {
namespace {

// The first |rows| of dimension 0 (0 = all) of a tensor, as the host stages them for a transfer: dense in the extents
// that they have on the card.
class Staging {
 public:
  Staging(const TensorStore& store, int64_t rows) : store_(store), logical_(store.spec.logical()) {
    if (rows > 0 && !logical_.empty()) logical_[0] = rows;
    card_ = store.spec.card();
    if (rows > 0 && !card_.empty()) card_[0] = store.spec.axes[0].to_card(rows - 1) + 1;
    strides_.assign(card_.size(), 1);
    for (size_t d = card_.size(); d-- > 1;) strides_[d - 1] = strides_[d] * card_[d];
    for (const Axis& axis : store.spec.axes) {
      maps_.push_back(axis.card_indices());
      padded_ = padded_ || axis.padded();
    }
  }

  int64_t elements() const { return product(logical_); }

  // |dense| holds the logical elements, row-major, as words of the card.
  void to_device(const std::byte* dense, std::byte* device) const {
    const size_t size = size_of(store_.spec.dtype);
    const DmaPlan plan = plan_dma(store_.spec.layout, card_, strides_);
    if (!padded_) return run_to_device(plan, dense, device);
    std::vector<std::byte> staged(static_cast<size_t>(product(card_)) * size);
    poison_words(store_.spec.dtype, staged.data(), staged.size() / size);
    for_each([&](int64_t i, int64_t at) { std::memcpy(staged.data() + at * size, dense + i * size, size); });
    run_to_device(plan, staged.data(), device);
  }

  void to_host(const std::byte* device, std::byte* dense) const {
    const size_t size = size_of(store_.spec.dtype);
    const DmaPlan plan = plan_dma(store_.spec.layout, card_, strides_);
    if (!padded_) return run_to_host(plan, device, dense);
    std::vector<std::byte> staged(static_cast<size_t>(product(card_)) * size);
    run_to_host(plan, device, staged.data());
    for_each([&](int64_t i, int64_t at) { std::memcpy(dense + i * size, staged.data() + at * size, size); });
  }

  // visit(i, source): logical element i, row-major, and its place in a source with |strides|.
  template <typename Visit>
  void for_each_source(std::span<const int64_t> strides, Visit&& visit) const {
    walk_places([&](size_t d, int64_t index) { return index * strides[d]; }, visit);
  }

 private:
  static int64_t product(const std::vector<int64_t>& extents) {
    int64_t elements = 1;
    for (const int64_t extent : extents) elements *= extent;
    return elements;
  }

  template <typename Visit>
  void for_each(Visit&& visit) const {
    walk_places([&](size_t d, int64_t index) { return maps_[d][index] * strides_[d]; }, visit);
  }

  // visit(i, sum over the dimensions of place(d, index)) in row-major order of the logical elements.
  template <typename Place, typename Visit>
  void walk_places(Place&& place, Visit&& visit) const {
    const size_t rank = logical_.size();
    if (rank == 0) return visit(0, 0);
    const int64_t count = elements(), inner = logical_.back();
    std::vector<int64_t> index(rank, 0);
    for (int64_t i = 0; i < count; i += inner) {
      int64_t first = 0;
      for (size_t d = 0; d + 1 < rank; ++d) first += place(d, index[d]);
      for (int64_t j = 0; j < inner; ++j) visit(i + j, first + place(rank - 1, j));
      for (size_t d = rank - 1; d-- > 0 && ++index[d] == logical_[d];) index[d] = 0;
    }
  }

  const TensorStore& store_;
  std::vector<int64_t> logical_, card_, strides_;
  std::vector<std::vector<int64_t>> maps_;
  bool padded_ = false;
};

}  // namespace

float to_float(DType dtype, const std::byte* at, int64_t i) {
  switch (dtype) {
    case DType::kF16:
      return f16_to_f32(reinterpret_cast<const uint16_t*>(at)[i]);
    case DType::kBF16:
      return bf16_to_f32(reinterpret_cast<const uint16_t*>(at)[i]);
    case DType::kF32:
      return reinterpret_cast<const float*>(at)[i];
    case DType::kI32:
      return static_cast<float>(reinterpret_cast<const int32_t*>(at)[i]);
    default:
      SPYRE_CHECK(false, "dtype {}", to_string(dtype));
  }
  return 0;
}

void write_card(TensorStore& store, const std::byte* from, std::span<const int64_t> source_strides, int64_t rows) {
  const Staging staging(store, rows);
  const size_t size = size_of(store.spec.dtype);
  std::vector<std::byte> gathered, dense(static_cast<size_t>(staging.elements()) * size);
  if (!source_strides.empty()) {
    gathered.resize(dense.size());
    staging.for_each_source(source_strides, [&](int64_t i, int64_t source) {
      std::memcpy(gathered.data() + i * size, from + source * size, size);
    });
    from = gathered.data();
  }
  convert_to_card(store.spec.dtype, store.conversion, from, staging.elements(), dense.data());
  staging.to_device(dense.data(), store.memory.data());
}

void read_card(const TensorStore& store, float* to, int64_t rows, bool converts) {
  const Staging staging(store, rows);
  const DType dtype = store.spec.dtype;
  std::vector<std::byte> dense(static_cast<size_t>(staging.elements()) * size_of(dtype)), converted(dense.size());
  staging.to_host(store.memory.data(), dense.data());
  if (!converts && store.conversion.dl16 && is_16bit_float(dtype)) {
    const auto* codes = reinterpret_cast<const uint16_t*>(dense.data());
    std::transform(codes, codes + staging.elements(), to, dl16_to_f32);
    return;
  }
  convert_to_host(dtype, store.conversion, dense.data(), staging.elements(), converted.data());
  for (int64_t i = 0; i < staging.elements(); ++i) to[i] = to_float(dtype, converted.data(), i);
}

void poison_words(DType dtype, std::byte* at, size_t words) {
  switch (dtype) {
    case DType::kF16:
    case DType::kBF16:
      std::fill_n(reinterpret_cast<uint16_t*>(at), words, uint16_t{0x7fff});  // a NaN in both
      return;
    case DType::kF32:
      std::fill_n(reinterpret_cast<uint32_t*>(at), words, 0x7fffffffu);
      return;
    default:
      std::memset(at, 0xff, words * size_of(dtype));
  }
}

}  // namespace spyre::device
