// What a partial stick is filled up with before an operator reads it. Source: torch-spyre's padding rules (H): a
// partial last stick occupies a whole one, and what lies behind the elements is masked by the operator that would see
// it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plugins/spyre/device/layout.h"

namespace spyre::device {

enum class Fill : uint8_t {
  kNone,     // padding may hold anything: it comes out as padding again
  kZero,     // the sum family, and K of a matmul (inside the stick of x, whole rows of y)
  kLowest,   // max: -infinity
  kHighest,  // min: +infinity
};

// Fills every element of |memory| that holds no host element: behind the end of a dimension, inside and outside of the
// stick; of a sparse stick all but its first element, of exx2 all but two.
void fill_padding(const Layout& layout, Fill fill, std::byte* memory);

}  // namespace spyre::device
