#include "plugins/spyre/device/transfer.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "plugins/spyre/device/card_transfer.h"
#include "plugins/spyre/kernels/panels.h"

namespace spyre::device {
namespace {

// Walks the logical coordinates of the first |rows| of dimension 0 in row-major order, keeping the strided source
// offset.
template <typename Visit>
void for_each_coordinate(const std::vector<int64_t>& extents, std::span<const int64_t> strides, Visit&& visit) {
  std::vector<int64_t> coordinate(extents.size(), 0);
  int64_t elements = 1;
  for (int64_t e : extents) elements *= e;
  int64_t source = 0;
  for (int64_t i = 0; i < elements; ++i) {
    visit(i, std::span<const int64_t>(coordinate), strides.empty() ? i : source);
    for (size_t d = extents.size(); d-- > 0;) {
      if (!strides.empty()) source += strides[d];
      if (++coordinate[d] < extents[d]) break;
      if (!strides.empty()) source -= strides[d] * extents[d];
      coordinate[d] = 0;
    }
  }
}

std::vector<int64_t> first_rows(const TensorSpec& spec, int64_t rows) {
  std::vector<int64_t> extents = spec.logical();
  if (rows > 0 && !extents.empty()) extents[0] = rows;
  return extents;
}

// Elements of the first |rows| of dimension 0 (0 = all). Unlike first_rows() it allocates nothing: steps come here.
int64_t first_elements(const TensorSpec& spec, int64_t rows) {
  const int64_t elements = spec.logical_elements();
  if (rows <= 0 || spec.axes.empty()) return elements;
  return elements / std::max<int64_t>(spec.axes[0].logical(), 1) * rows;
}

// A slice of the weight's columns (all of them, or of the dimension that is the columns from |first| on): |from| with
// |shape| and |strides|.
void write_panels(TensorStore& store, const std::byte* from, std::span<const int64_t> shape,
                  std::span<const int64_t> strides, int64_t first) {
  const std::vector<int64_t> whole = store.spec.logical();
  SPYRE_CHECK(whole.size() == 2 && shape.size() == 2);
  const bool out_in = store.form == HostForm::kPanelsOutIn;
  const kernels::PanelLayout layout{store.order, out_in ? whole[1] : whole[0], out_in ? whole[0] : whole[1]};
  const int64_t columns = out_in ? shape[0] : shape[1];
  SPYRE_CHECK((out_in ? shape[1] : shape[0]) == layout.k, "{} rows of {}", out_in ? shape[1] : shape[0], layout.k);
  const int64_t row_stride = strides.empty() ? shape[1] : strides[0];
  const int64_t column_stride = strides.empty() ? 1 : strides[1];
  const auto* source = reinterpret_cast<const uint16_t*>(from);
  auto* panels = reinterpret_cast<uint16_t*>(store.memory.data());
  // One of the two source strides is 1: the checkpoint's [out, in], seen as it is or transposed.
  const int64_t k_stride = out_in ? column_stride : row_stride, n_stride = out_in ? row_stride : column_stride;
  if (n_stride == 1) {
    kernels::pack_panels(layout, kernels::SourceOrder::kInOut, source, k_stride, first, columns, panels);
  } else {
    SPYRE_CHECK(k_stride == 1, "strides {} {}", k_stride, n_stride);
    kernels::pack_panels(layout, kernels::SourceOrder::kOutIn, source, n_stride, first, columns, panels);
  }
}

}  // namespace

void write_store(TensorStore& store, const std::byte* from, std::span<const int64_t> strides, int64_t rows) {
  if (store.card) return write_card(store, from, strides, rows);
  if (store.form == HostForm::kPanels || store.form == HostForm::kPanelsOutIn) {
    SPYRE_CHECK(rows == 0, "panels are written whole");
    return write_panels(store, from, store.spec.logical(), strides, 0);
  }
  SPYRE_CHECK(is_row_major(store.form), "{} is not written by transfer", store.label);
  const size_t size = size_of(store.spec.dtype);
  if (strides.empty()) {
    std::memcpy(store.memory.data(), from, static_cast<size_t>(first_elements(store.spec, rows)) * size);
    return;
  }
  for_each_coordinate(first_rows(store.spec, rows), strides, [&](int64_t i, std::span<const int64_t>, int64_t source) {
    std::memcpy(store.memory.data() + i * size, from + source * size, size);
  });
}

void write_slice(TensorStore& store, const std::byte* from, std::span<const int64_t> shape,
                 std::span<const int64_t> strides, int dim, int64_t first) {
  SPYRE_CHECK(!store.card, "{} is a card store", store.label);
  if (store.form == HostForm::kPanels || store.form == HostForm::kPanelsOutIn) {
    SPYRE_CHECK(dim == (store.form == HostForm::kPanels ? 1 : 0), "a slice of dimension {}", dim);
    return write_panels(store, from, shape, strides, first);
  }
  SPYRE_CHECK(is_row_major(store.form) && dim == 0 && strides.empty(), "a slice of {}", store.label);
  const size_t size = size_of(store.spec.dtype);
  const int64_t whole = store.spec.logical_elements(), rows = store.spec.axes.at(0).logical();
  const auto row_bytes = static_cast<size_t>(whole / std::max<int64_t>(rows, 1)) * size;
  std::memcpy(store.memory.data() + static_cast<size_t>(first) * row_bytes, from,
              static_cast<size_t>(shape[0]) * row_bytes);
}

void read_store(const TensorStore& store, float* to, int64_t rows) {
  if (store.card) return read_card(store, to, rows);
  SPYRE_CHECK(is_row_major(store.form), "{} is not read by transfer", store.label);
  const int64_t elements = first_elements(store.spec, rows);
  if (store.spec.dtype == DType::kF32) {
    std::memcpy(to, store.memory.data(), static_cast<size_t>(elements) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < elements; ++i) to[i] = to_float(store.spec.dtype, store.memory.data(), i);
}

int64_t transfer_card_bytes(const TensorSpec& spec, int64_t rows) {
  if (rows <= 0 || spec.axes.empty() || spec.axes[0].card() == 0) return spec.card_bytes();
  // Dimension 0 is never the stick of a table of rank > 1; of rank 1 it is, and whole sticks move.
  if (spec.axes.size() == 1)
    return round_up(rows, stick_elements(spec.dtype)) * static_cast<int64_t>(size_of(spec.dtype));
  return spec.card_bytes() / spec.axes[0].card() * rows;
}

void poison(TensorStore& store) {
  poison_words(store.spec.dtype, store.memory.data(), store.memory.size() / size_of(store.spec.dtype));
}

}  // namespace spyre::device
