// One graph operator as the card computes it in DL16: 16-bit values are DL16 whatever the model's 16-bit type, fp32
// values stay fp32, and an operator that the card has no single function for is rounded after each function that it is
// made of (docs/numerics.md, "DL16").
#pragma once

#include <span>
#include <vector>

#include "graph/interpreter.h"
#include "plugins/spyre/device/dl16_math.h"

namespace spyre::device {

// What the card plan adds to a graph operator.
struct Dl16Placement {
  std::vector<int64_t> card;  // card coordinates of what is summed: K, or the last dimension; ascending
  int64_t per_core = 0;       // of a matmul: card elements of K that one core has
};

// |inputs| hold DL16 values where their type is 16-bit. REQUIRES: no call (kv_store, attention).
graph::Array evaluate_dl16(const Dl16Math& math, const graph::Op& op, std::span<const graph::Array* const> inputs,
                           const graph::Type& type, const Dl16Placement& placement);

}  // namespace spyre::device
