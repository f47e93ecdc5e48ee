// Runs a card plan operation by operation on card memory. What an operation computes is a CardMath: the exact
// interpreter's (checked_executor.h) or the card's DL16 (dl16_executor.h). Internal to the device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "plugins/spyre/device/checked_cache.h"
#include "plugins/spyre/device/checked_memory.h"
#include "plugins/spyre/device/program.h"

namespace spyre::device {

// One query row of one head against the blocks that its program reads: |q| and |y| have the head size.
class AttentionRow {
 public:
  virtual ~AttentionRow() = default;
  virtual void run(const RowBlocks& blocks, int64_t kv_head, const float* q, float* y) = 0;
};

class CardMath {
 public:
  virtual ~CardMath() = default;
  // The result, of |type|, of |op|, which is no call.
  virtual graph::Array evaluate(const CheckedMemory& memory, const DeviceOp& device_op, const graph::Op& op,
                                std::span<const graph::Array* const> inputs, const graph::Type& type) const = 0;
  // |tables| and |kv| outlive what is returned.
  virtual std::unique_ptr<AttentionRow> attention(const graph::Op& op, const graph::Type& q, const CardTables& tables,
                                                  const CardKv& kv) const = 0;
};

// As run_checked(); the calls of the plan are checked first (plan_calls.h). |conversion| says what the 16-bit words of
// the pool are; tensors say it of their own.
void run_card_plan(const Launch& launch, std::byte* pool, int64_t live_rows, const attention::StepTables* tables,
                   const Conversion& conversion, const CardMath& math);

}  // namespace spyre::device
