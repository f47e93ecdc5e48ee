// Phase, the last of work division: every operation that no earlier phase divided for good takes as many cores as exact
// splits allow: dimensions of the result first, the largest first, each by its largest divisor; then a reduced one.
#pragma once

#include "plugins/spyre/compiler/card_plan.h"
#include "plugins/spyre/device/core_map.h"

namespace spyre::compiler {

// One operation, over |cores| at most; keeps what is cut already.
void divide_largest(device::DeviceOp& op, int64_t cores = device::kCores);

// The number of operations that run on more than one core.
int64_t divide_work(CardState& state);

}  // namespace spyre::compiler
