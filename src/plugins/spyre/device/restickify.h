// ReStickifyOpHBM: a change of the stick dimension, memory to memory, as the card makes it: tile by tile of E x E
// elements, each transposed. Source: torch-spyre (H).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "plugins/spyre/device/placement.h"

namespace spyre::device {

// Moves every element of card coordinates below |extents| from where |from| has it in |source| to where |to| has it in
// |target|, elements of |element_bytes| (2 or 4). The two differ in their stick dimension. Padding of |target| is left
// as it is. The memories do not overlap. Elements that nobody has written are moved like any other.
void transpose_tiles(const Placement& from, const Placement& to, std::span<const int64_t> extents,
                     const std::byte* source, std::byte* target, int64_t element_bytes);

}  // namespace spyre::device
