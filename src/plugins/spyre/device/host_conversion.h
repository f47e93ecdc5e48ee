// The data conversion that the host makes at a copy: before a transfer to the card, after one from it. Source:
// torch-spyre (H); its switches are those of DL16 (base/dl16.h).
//
// The software device computes in the model's own 16-bit type unless it is asked for the card's: a Conversion says
// which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/dl16.h"
#include "base/dtype.h"
#include "plugins/spyre/device/card_types.h"

namespace spyre::device {

struct Conversion {
  std::optional<Dl16Rules> dl16;  // none: f16 and bf16 words stay as they are
};

// |n| dense elements. The card's have bits_of(card_type_of(dtype)); bool becomes 0 or 1. Throws Error(kRuleViolation):
// L-23 for a type that the card does not have, L-24 for an i64 that does not fit.
void convert_to_card(DType dtype, const Conversion& conversion, const std::byte* host, int64_t n, std::byte* card);
void convert_to_host(DType dtype, const Conversion& conversion, const std::byte* card, int64_t n, std::byte* host);

}  // namespace spyre::device
