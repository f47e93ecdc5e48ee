// Where the barriers of a host plan are: cuts its steps into segments and phases (device/host_plan.h), marks the slots
// that a segment keeps to itself, and plans the arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "plugins/spyre/device/host_plan.h"

namespace spyre::compiler {

// Of an arena slot: its size at the bucket, and the first and last step that touch it (-1: none does).
struct SlotUse {
  size_t bytes = 0;
  int32_t first = -1, last = -1;
};

// |uses| is parallel to the plan's slots; |threads|: of the team that the plan is made for (any runs it). REQUIRES:
// steps and slots are complete.
void plan_phases(device::HostPlan& plan, std::span<const SlotUse> uses, int threads);
// After plan_phases: offsets of arena slots. Slots that are in use between the same two barriers do not overlap.
void plan_arena(device::HostPlan& plan, std::span<const SlotUse> uses);

}  // namespace spyre::compiler
