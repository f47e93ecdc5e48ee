// How a tensor lies in the card's memory: in sticks of 128 bytes. Source of the rules: torch-spyre's layout algorithm
// (default_layout, sparse and custom dimension orders).
//
// Device memory is dense and row-major over device_size; the last device dimension is the place inside the stick and
// always has E = 128 / sizeof(element) elements. stride_map[i] is what one step in device dimension i moves in the host
// tensor: -1 for a dimension that the host does not have (synthetic, or of size 1). One host dimension, the stick
// dimension, appears twice: once counting sticks, once inside the stick. Device coordinates past the host size are
// padding.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace spyre::device {

inline constexpr int64_t kStickBytes = 128;
inline int64_t stick_elements(DType dtype) {
  return kStickBytes / static_cast<int64_t>(size_of(dtype));
}
inline int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

struct Layout {
  DType dtype = DType::kF16;
  std::vector<int64_t> host_size;
  std::vector<int64_t> device_size;
  std::vector<int64_t> stride_map;
  std::vector<int> dim_map;  // host dimension of each device dimension; -1 = synthetic
  int stick_dim = -1;        // host dimension in the stick; -1 = sparse (one valid element per stick) or scalar

  bool sparse() const { return stick_dim < 0; }
  int64_t device_elements() const;
  int64_t bytes() const { return device_elements() * static_cast<int64_t>(size_of(dtype)); }
  // Offset in elements of a host coordinate.
  int64_t offset(std::span<const int64_t> coordinate) const;
  std::string to_string() const;  // "[4,512,64] stick=1"

  bool operator==(const Layout&) const = default;
};

// |dim_order| is a permutation of 0 .. rank-1 whose last entry is the stick dimension, or of 0 .. rank-1 followed by -1
// for a sparse layout; empty = 0 .. rank-1. Throws Error(kInvalidArgument) for anything else.
Layout default_layout(DType dtype, std::vector<int64_t> host_size, std::vector<int> dim_order = {});

// The layout change that moves the stick of |from| to host dimension |stick_dim|; an E x E tile transpose in memory.
// Throws Error(kRuleViolation) for what the card cannot do (from a sparse stick, fp32).
Layout restickified(const Layout& from, int stick_dim);

}  // namespace spyre::device
