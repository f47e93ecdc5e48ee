#include "plugins/spyre/device/tensor.h"

#include <sys/mman.h>

#include <numeric>
#include <utility>

#include "base/error.h"

namespace spyre::device {

TensorSpec TensorSpec::plain(DType dtype, const std::vector<int64_t>& extents) {
  std::vector<Axis> axes;
  for (int64_t extent : extents) axes.emplace_back(extent);
  return with_axes(dtype, std::move(axes));
}

TensorSpec TensorSpec::with_axes(DType dtype, std::vector<Axis> axes, std::vector<int> dim_order) {
  TensorSpec spec{.dtype = dtype, .axes = std::move(axes)};
  spec.layout = default_layout(dtype, spec.card(), std::move(dim_order));
  return spec;
}

std::vector<int64_t> TensorSpec::logical() const {
  std::vector<int64_t> extents;
  for (const Axis& axis : axes) extents.push_back(axis.logical());
  return extents;
}

std::vector<int64_t> TensorSpec::card() const {
  std::vector<int64_t> extents;
  for (const Axis& axis : axes) extents.push_back(axis.card());
  return extents;
}

int64_t TensorSpec::logical_elements() const {
  int64_t elements = 1;
  for (const Axis& axis : axes) elements *= axis.logical();
  return elements;
}

namespace {

constexpr size_t kHugePage = size_t{2} << 20;

size_t mapped_size(size_t bytes) {
  const size_t page = bytes >= kHugePage ? kHugePage : 4096;
  return (bytes + page - 1) / page * page;
}

}  // namespace

HostBuffer::HostBuffer(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  const size_t length = mapped_size(bytes);
  // Over-map by one huge page and cut both ends off, so that the block is aligned to it.
  const size_t slack = bytes >= kHugePage ? kHugePage : 0;
  void* raw = mmap(nullptr, length + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) throw_error(ErrorCode::kResourceExhausted, "cannot map {} bytes of memory", length);
  auto address = reinterpret_cast<uintptr_t>(raw);
  if (slack > 0) {
    const uintptr_t aligned = (address + kHugePage - 1) / kHugePage * kHugePage;
    if (aligned > address) munmap(raw, aligned - address);
    const uintptr_t tail = aligned + length, end = address + length + slack;
    if (end > tail) munmap(reinterpret_cast<void*>(tail), end - tail);
    address = aligned;
    madvise(reinterpret_cast<void*>(address), length, MADV_HUGEPAGE);  // a wish: 4 KiB pages work too
  }
  data_ = reinterpret_cast<std::byte*>(address);
}

HostBuffer::HostBuffer(std::shared_ptr<const HostBuffer> whole, size_t offset, size_t bytes)
    : data_(whole->data() + offset), size_(bytes), whole_(std::move(whole)) {
  SPYRE_CHECK(offset + bytes <= whole_->size(), "{} bytes at {} of {}", bytes, offset, whole_->size());
}

HostBuffer::~HostBuffer() {
  if (data_ != nullptr && whole_ == nullptr) munmap(data_, mapped_size(size_));
}

HostBuffer::HostBuffer(HostBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      whole_(std::exchange(other.whole_, nullptr)) {}

HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(whole_, other.whole_);
  return *this;
}

}  // namespace spyre::device
