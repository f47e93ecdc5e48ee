// Loops of host steps: which rows a thread computes, and where each operand's row begins.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/team.h"
#include "plugins/spyre/device/host_plan.h"

namespace spyre::device {

inline constexpr int kMaxOperands = 4;
inline constexpr int kMaxLoopDims = 6;

// The outer dimensions of an operator, with a stride per operand (0 where it broadcasts). Immutable after construction.
class RowLoop {
 public:
  RowLoop() = default;
  // |dims|: the loop's dimensions, outermost first; |strides[operand][dim]| in elements.
  RowLoop(const std::vector<HostDim>& dims, const std::vector<std::vector<int64_t>>& strides);

  int64_t count(int64_t rows) const {
    int64_t n = 1;
    for (int d = 0; d < rank_; ++d) n *= dims_[d].live(rows);
    return n;
  }
  int operands() const { return operands_; }
  bool single() const { return rank_ == 0; }  // one iteration

  // Whether the live rows are the outermost dimension, and no other grows with the run: then row r is iterations
  // [r * per_row(), (r + 1) * per_row()).
  bool rowwise() const;
  int64_t per_row() const;
  int64_t row_stride(int operand) const { return strides_[operand][0] * dims_[0].per_row; }
  // Iterations of a row that every operand walks through in one stride: all of them, or 0 where there is no such
  // stride.
  int64_t lanes() const;
  int64_t lane_stride(int operand) const;

  // body(offsets) for iterations [range.begin, range.end); offsets[operand] is in elements.
  template <typename Body>
  void each(int64_t rows, Range range, Body&& body) const {
    if (range.begin >= range.end) return;
    std::array<int64_t, kMaxLoopDims> at{};
    std::array<int64_t, kMaxOperands> offsets{};
    int64_t rest = range.begin;
    for (int d = rank_ - 1; d >= 0; --d) {
      const int64_t extent = dims_[d].live(rows);
      at[d] = rest % extent;
      rest /= extent;
      for (int o = 0; o < operands_; ++o) offsets[o] += at[d] * strides_[o][d];
    }
    for (int64_t i = range.begin;;) {
      body(offsets);
      if (++i == range.end) return;
      for (int d = rank_ - 1; d >= 0; --d) {
        for (int o = 0; o < operands_; ++o) offsets[o] += strides_[o][d];
        if (++at[d] < dims_[d].live(rows)) break;
        for (int o = 0; o < operands_; ++o) offsets[o] -= at[d] * strides_[o][d];
        at[d] = 0;
      }
    }
  }

 private:
  int rank_ = 0, operands_ = 0;
  std::array<HostDim, kMaxLoopDims> dims_{};
  std::array<std::array<int64_t, kMaxLoopDims>, kMaxOperands> strides_{};
};

}  // namespace spyre::device
