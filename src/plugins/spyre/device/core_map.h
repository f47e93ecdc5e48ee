// Which part of an operation each of the card's 32 cores has. An iteration dimension is cut into equal slices; core c
// has slice floor(c / product of the earlier splits) mod split of each dimension: the first dimension changes fastest.
// Reduced dimensions come first, so the cores that share a sum are neighbours on the ring. Source: torch-spyre's work
// division (H).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plugins/spyre/device/program.h"

namespace spyre::device {

inline constexpr int64_t kCores = 32;

// How many cores work: the product of the splits.
int64_t core_count(std::span<const int64_t> splits);

// The slice of iteration dimension |dim| that |core| has, 0 .. splits[dim]-1.
int64_t slice_of_core(std::span<const int64_t> splits, size_t dim, int64_t core);

// One operand's part by core: per dimension of the operand the number of slices it is cut into, and per core and
// dimension the slice. Two operations see a buffer alike exactly when these are equal.
struct CoreView {
  std::vector<int64_t> slices;            // per dimension; 1 where no split walks it
  std::vector<std::vector<int64_t>> has;  // [core][dimension]
  bool operator==(const CoreView&) const = default;
};

// |operand| counts inputs, then outputs. REQUIRES: the operation has walks for it.
CoreView core_view(const DeviceOp& op, size_t operand);

}  // namespace spyre::device
