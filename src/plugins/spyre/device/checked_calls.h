// kv_store and attention on the card's KV layout and the step's tables. Internal to the executors of card plans.
#pragma once

#include "plugins/spyre/device/card_executor.h"
#include "plugins/spyre/device/checked_cache.h"
#include "plugins/spyre/device/checked_memory.h"

namespace spyre::device {

void checked_kv_store(const CheckedMemory& memory, const DeviceOp& op, const attention::StepTables* tables);
void checked_attention(const CheckedMemory& memory, const graph::Op& graph_op, const DeviceOp& op,
                       const attention::StepTables* tables, const CardMath& math);

}  // namespace spyre::device
