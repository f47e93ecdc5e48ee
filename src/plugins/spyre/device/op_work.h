// The work of a card plan's operations, as the cost model takes it: what reports, traces and sizing ask times of. Made
// when it is asked for, from the plan alone; nothing of it is kept with the program.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "plugins/spyre/device/cost.h"
#include "plugins/spyre/device/program.h"

namespace spyre::device {

// Of operation |index|. |graph| is what |plan| was made from; its multiply-adds and bytes are those that the plan's
// operations account for (compiler/account_work.h), less what plan_lx() took from them.
OpWork work_of(const graph::Graph& graph, const CardPlan& plan, size_t index);

// Bytes of operand |operand| (inputs, then outputs) that lie together where one core has its part: what its requests to
// memory can be made of. At least a stick.
int64_t run_bytes(const CardPlan& plan, const DeviceOp& op, size_t operand);

// Operations [first, end) of the plan that run as one bundle: neighbours, as far as each hands a result to the next
// inside the card (the stages of one operator, or a buffer that stays in the scratchpad). A restickify and attention
// stand alone. How the card's own scheduler cuts bundles is not public (INF).
struct Bundle {
  int32_t first = 0, end = 0;
  OpTime time;
};
std::vector<Bundle> bundles_of(const graph::Graph& graph, const CardPlan& plan, const CostConfig& config);

// All bundles, one after another, and the launch. Without what depends on a step: the keys that attention reads.
double program_ns(const graph::Graph& graph, const CardPlan& plan, const CostConfig& config);

}  // namespace spyre::device
