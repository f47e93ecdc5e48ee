// Tensors in device memory.
//
// A DeviceTensor is an opaque handle: what it holds is reached only by the device's own executors and by transfers,
// which count. TensorSpec says what the tensor is on the card: logical and card extents per dimension, and the layout
// of the card extents in sticks.
//
// Behind a handle lies one of two stores, chosen when it is allocated:
//   card   the bytes of the layout, padding and all (checked and DL16 mode), unwritten bytes poisoned
//   host   logical elements only, in the order that the CPU kernels want (the default)
// Accounts (bytes, segments) always speak of the card.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dot_orders.h"
#include "plugins/spyre/device/axis.h"
#include "plugins/spyre/device/host_conversion.h"
#include "plugins/spyre/device/layout.h"

namespace spyre::device {

struct TensorSpec {
  DType dtype = DType::kF16;
  std::vector<Axis> axes;
  Layout layout;  // of the card extents

  // Unpadded axes, default layout.
  static TensorSpec plain(DType dtype, const std::vector<int64_t>& extents);
  static TensorSpec with_axes(DType dtype, std::vector<Axis> axes, std::vector<int> dim_order = {});
  std::vector<int64_t> logical() const;
  std::vector<int64_t> card() const;
  int64_t logical_elements() const;
  int64_t card_bytes() const { return layout.bytes(); }
  bool operator==(const TensorSpec&) const = default;
};

// How the host store keeps the elements.
enum class HostForm : uint8_t {
  kRowMajor,     // logical extents, row-major
  kGatherTable,  // the same, read by gathers alone: may be the transpose of somebody's panels
  kPanels,       // a [K, N] weight in stick panels (kernels/panels.h)
  kPanelsOutIn,  // an [N, K] weight, kept as panels of its transpose
  kKvPages,      // one layer's K and V pages (kernels/kv_pages.h); the spec is that of one of the two tensors
};

inline bool is_row_major(HostForm form) {
  return form == HostForm::kRowMajor || form == HostForm::kGatherTable;
}

// Zeroed, 64-byte aligned memory; huge pages for large blocks where the kernel grants them. Taken from the system page
// by page as it is touched.
class HostBuffer {
 public:
  HostBuffer() = default;
  explicit HostBuffer(size_t bytes);
  // Part of |whole|, which lives as long as any of its parts.
  HostBuffer(std::shared_ptr<const HostBuffer> whole, size_t offset, size_t bytes);
  ~HostBuffer();
  HostBuffer(HostBuffer&& other) noexcept;
  HostBuffer& operator=(HostBuffer&& other) noexcept;
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::shared_ptr<const HostBuffer> whole_;  // of a part
};

// The storage behind a handle. Only files of device/ and attention/ that execute or transfer include what is inside.
struct TensorStore {
  TensorSpec spec;
  std::string label;  // what it is, for accounts: "weights", "kv", "activations", "tables"
  HostForm form = HostForm::kRowMajor;
  DotOrder order = DotOrder::kSequential;  // of panels and pages
  int64_t num_blocks = 0, block_size = 0;  // of KV pages
  bool card = false;                       // which store |memory| is
  Conversion conversion;                   // of a card store: what its 16-bit words are
  HostBuffer memory;
  // Host KV pages: the layers of a model share one buffer, block after block and inside a block layer after layer, so
  // that a short sequence touches few pages of memory. Block b of this layer is at pages + b * page_stride.
  std::shared_ptr<HostBuffer> page_memory;
  std::byte* pages = nullptr;
  int64_t page_stride = 0;  // bytes
  std::shared_ptr<TensorStore>
      twin;                  // another store whose elements this one shares (a tied table reads the head's panels)
  int64_t card_address = 0;  // in device memory
  std::shared_ptr<void> reservation;  // gives the card bytes back
};

using DeviceTensor = std::shared_ptr<TensorStore>;

}  // namespace spyre::device
