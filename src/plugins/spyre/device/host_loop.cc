#include "plugins/spyre/device/host_loop.h"

#include "base/error.h"

namespace spyre::device {

RowLoop::RowLoop(const std::vector<HostDim>& dims, const std::vector<std::vector<int64_t>>& strides)
    : operands_(static_cast<int>(strides.size())) {
  SPYRE_CHECK(dims.size() <= kMaxLoopDims && strides.size() <= kMaxOperands, "{} dimensions, {} operands", dims.size(),
              strides.size());
  // Dimensions that every operand walks through in one stride are one dimension: fewer carries in the loop.
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d].extent == 1 && dims[d].per_row == 0) continue;
    bool merges = rank_ > 0 && dims[d].per_row == 0;
    for (int o = 0; merges && o < operands_; ++o) {
      merges = strides_[o][rank_ - 1] == strides[o][d] * dims[d].extent;
    }
    if (merges) {
      HostDim& outer = dims_[rank_ - 1];
      outer.extent *= dims[d].extent;
      outer.per_row *= dims[d].extent;
      for (int o = 0; o < operands_; ++o) strides_[o][rank_ - 1] = strides[o][d];
      continue;
    }
    dims_[rank_] = dims[d];
    for (int o = 0; o < operands_; ++o) strides_[o][rank_] = strides[o][d];
    ++rank_;
  }
}

bool RowLoop::rowwise() const {
  if (rank_ == 0 || dims_[0].per_row == 0) return false;
  for (int d = 1; d < rank_; ++d) {
    if (dims_[d].per_row > 0) return false;
  }
  return true;
}

int64_t RowLoop::per_row() const {
  int64_t n = dims_[0].per_row;
  for (int d = 1; d < rank_; ++d) n *= dims_[d].extent;
  return n;
}

int64_t RowLoop::lanes() const {
  if (rank_ == 1) return dims_[0].per_row;
  return rank_ == 2 && dims_[0].per_row == 1 ? dims_[1].extent : 0;
}

int64_t RowLoop::lane_stride(int operand) const {
  return strides_[operand][rank_ - 1];
}

}  // namespace spyre::device
