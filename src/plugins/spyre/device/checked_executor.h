// Checked execution: the card plan of a program, op by op on card extents, in memory where everything that nobody wrote
// is poison. Slow, for tests and for people who develop against the card's rules.
#pragma once

#include <cstdint>

#include "base/dot_orders.h"
#include "plugins/spyre/device/program.h"

namespace spyre::device {

// Tensors of |launch| are card stores. |pool| has the plan's pool_bytes, poisoned by the caller.
void run_checked(const Launch& launch, std::byte* pool, int64_t live_rows, const attention::StepTables* tables,
                 DotOrder bf16_order);

}  // namespace spyre::device
