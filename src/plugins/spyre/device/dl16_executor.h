// DL16 execution: the card plan of a program, op by op on card memory as in checked mode, but in the card's own 16-bit
// numbers and with the roundings of its operators (dl16_math.h, docs/numerics.md). Words of 16-bit tensors are DL16
// codes; the K splits of the plan are executed. For finding out what the card's arithmetic does to a model: slow, and
// no promise of equal bits with the card, of which not all is known.
//
// Attention is the card's program of one sequence, block by block of keys: scores, scale, soft cap, mask, running
// maximum and rescaled sums, each function rounded. A masked key takes part as the lowest half-precision number does,
// so what stands in its slot counts as far as exp lets it (H; that masks of -infinity mean the same is INF).
#pragma once

#include <cstdint>

#include "plugins/spyre/device/dl16_math.h"
#include "plugins/spyre/device/program.h"

namespace spyre::device {

// As run_checked(), for tensors whose words are DL16.
void run_dl16(const Launch& launch, std::byte* pool, int64_t live_rows, const attention::StepTables* tables,
              const Dl16Settings& settings);

}  // namespace spyre::device
