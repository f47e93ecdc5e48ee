// The card layout of a KV cache: K and V of one layer, each [slots, heads, head size] with the slot axis outermost, so
// that a token's store is one contiguous run and the scatter hits the rows it means (slot-major; the default layout
// would put the slot axis inside and scatter into the wrong rows).
#pragma once

#include "plugins/spyre/device/tensor.h"

namespace spyre::attention {

// |heads| and |head| are the axes of the state's type; device size [slots, heads, head / 64, 64].
device::TensorSpec slot_major_kv_spec(DType dtype, int64_t slots, const device::Axis& heads, const device::Axis& head);

}  // namespace spyre::attention
