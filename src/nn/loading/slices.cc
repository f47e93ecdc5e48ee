#include "nn/loading/slices.h"

#include <algorithm>
#include <tuple>

namespace spyre::nn {
namespace {

// How far the system is told to read before the members: some milliseconds of a fast disk, and little beside a model.
constexpr int64_t kReadAheadBytes = int64_t{32} << 20;

int64_t file_bytes(const Slice& slice) {
  return static_cast<int64_t>(slice.tensor->bytes) / std::max<int64_t>(slice.tensor->rows(), 1) * slice.rows;
}

}  // namespace

void SliceQueue::add(const formats::TensorInfo& tensor, int64_t slice_rows, size_t id) {
  const auto place = checkpoint_.place(tensor);
  for (int64_t row = 0; row < tensor.rows(); row += slice_rows) {
    slices_.push_back({&tensor, row, std::min(slice_rows, tensor.rows() - row), id, place});
  }
}

void SliceQueue::run(ThreadTeam* team, const std::function<void(const Slice&, int)>& take) {
  std::sort(slices_.begin(), slices_.end(), [](const Slice& a, const Slice& b) {
    return std::tie(a.place, a.first_row) < std::tie(b.place, b.first_row);
  });
  int64_t bytes = 0;
  for (const Slice& slice : slices_) {
    bytes_before_.push_back(bytes);
    bytes += file_bytes(slice);
  }
  if (team == nullptr) return member(0, take);
  TeamLease lease(*team);
  lease->run([&](int index, int) { member(index, take); });
}

void SliceQueue::member(int index, const std::function<void(const Slice&, int)>& take) {
  try {
    for (size_t i = next_.fetch_add(1); i < slices_.size(); i = next_.fetch_add(1)) {
      read_ahead(i);
      take(slices_[i], index);
    }
  } catch (...) {
    next_.store(slices_.size());
    throw;
  }
}

// Members announce slices in turn: two never announce the same one.
void SliceQueue::read_ahead(size_t taken) {
  const int64_t end = bytes_before_[taken] + kReadAheadBytes;
  size_t i = announced_.load();
  while (i < slices_.size() && bytes_before_[i] < end) {
    if (!announced_.compare_exchange_weak(i, i + 1)) continue;
    checkpoint_.will_need(*slices_[i].tensor, slices_[i].first_row, slices_[i].rows);
    ++i;
  }
}

}  // namespace spyre::nn
