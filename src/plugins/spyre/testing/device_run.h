// Test support: runs a compiled program on a software device with the same bindings that the interpreter takes, and
// gives its outputs back as fp32 arrays.
#pragma once

#include <vector>

#include "graph/interpreter.h"
#include "plugins/spyre/device/device.h"

namespace spyre::testing {

// Raw elements of |array| in the dtype of its type.
nn::HostTensor to_host_tensor(const graph::Array& array);

// |live| > 0: that many live rows (of inputs whose first dimension is the rows dimension, only these are uploaded).
// Graphs with states are not for this function.
std::vector<std::vector<float>> run_on_device(device::SoftwareDevice& device, const device::Program& program,
                                              const graph::Bindings& bindings, int64_t live = 0);

// Bits of a and b are equal; a NaN equals a NaN. On failure *where is the first index that differs.
bool equal_bits(std::span<const float> a, std::span<const float> b, size_t* where = nullptr);

}  // namespace spyre::testing
