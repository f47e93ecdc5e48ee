// kv_store and attention in checked execution, on the card's KV layout and the step's tables. Internal to the checked
// executor.
#pragma once

#include "plugins/spyre/attention/step_tables.h"
#include "plugins/spyre/device/checked_memory.h"

namespace spyre::device {

void checked_kv_store(const CheckedMemory& memory, const DeviceOp& op, const attention::StepTables* tables);
void checked_attention(const CheckedMemory& memory, const graph::Op& graph_op, const DeviceOp& op,
                       const attention::StepTables* tables, DotOrder bf16_order);

}  // namespace spyre::device
