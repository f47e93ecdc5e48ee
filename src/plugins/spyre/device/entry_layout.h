// The layout of tensors that are written and read by entry of their first dimension: KV caches by token, hidden states
// by row.
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "plugins/spyre/device/layout.h"

namespace spyre::device {

// Dimensions in the order of the host, the last one in the stick. The entries of dimension 0 lie one after another,
// each whole; so the first n of a tensor are a tensor of n entries, and an index finds an entry in one place. (The
// layout that the card's compiler chooses by itself, default_layout, has the sticks of all entries at one column
// together.) REQUIRES: rank 2 or more.
Layout entry_layout(DType dtype, std::vector<int64_t> host_size);

}  // namespace spyre::device
