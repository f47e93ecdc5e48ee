// Checked execution: the card plan of a program, op by op on card extents, in memory where everything that nobody wrote
// is poison. Slow, for tests and for people who develop against the card's rules.
//
// Operands are read element by element at the card addresses of their buffers, padding skipped; results are the exact
// interpreter's and are written the same way into memory that was poisoned before. So a wrong stride, pad, view, pool
// address or page index shows up as a NaN or a wrong number, never as a lucky zero. Rows that are not live stay poison.
#pragma once

#include <cstdint>

#include "base/dot_orders.h"
#include "plugins/spyre/device/program.h"

namespace spyre::device {

// Tensors of |launch| are card stores. |pool| has the plan's pool_bytes, poisoned by the caller. The calling thread
// holds ScopedFlushDenormals. Throws Error(kUnsupported) when a tensor does not lie as the program expects,
// Error(kRuleViolation) (L-14) for a KV block size that is no multiple of 64, Error(kInvalidArgument) for an index
// outside of its table.
void run_checked(const Launch& launch, std::byte* pool, int64_t live_rows, const attention::StepTables* tables,
                 DotOrder bf16_order);

}  // namespace spyre::device
