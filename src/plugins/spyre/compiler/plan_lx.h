// LX planning: which buffers of a card plan live in the scratchpad (device/lx.h), where, and why the others do not.
//
// A buffer is cut over the cores as its writer is divided. It may live in the scratchpad only if every reader's cores
// want exactly the parts that they themselves have (the same view: cut of the memory and core of each part). With
// LxOptions::relayout a reader that wants another cut gets a copy of its own over the ring, if there is room for both;
// otherwise nothing crosses from scratchpad to scratchpad. Excluded are partial sums, what is mutated, what a
// restickify reads, what is handed to operations outside of the program's kernels, indices and the tables they look up,
// and what is read in part. Inputs and parameters that are read twice are cloned in, outputs that are read are cloned
// out: they still make one trip through device memory. What the stages of one operator hand on to each other takes the
// backend's share of the scratchpad, not the planner's (INF). Source: torch-spyre's LX planning (H).
//
// A pure function of the plan. Not part of compilation: reports and time estimates ask for it.
#pragma once

#include <cstdint>

#include "plugins/spyre/compiler/plan_lx_place.h"
#include "plugins/spyre/device/program.h"

namespace spyre::compiler {

struct LxOptions {
  int64_t capacity = device::kLxPlannedBytes;  // bytes of a core
  LxSolver solver = LxSolver::kFirstFit;
  // Whether a restickify may read the scratchpad: not as shipped; with torch-spyre #4153, which proves that a core
  // reads only what it has. The same-view rule holds for it all the same.
  bool restickify_reads = false;
  // Whether readers that want other parts get them over the ring. torch-spyre's newest default (H); off here, since its
  // cost was fitted on later software than the rest of the model.
  bool relayout = false;
};

// Fills the verdict of every buffer, the copies and the summary; takes the traffic of what is resident from read_bytes
// and write_bytes of the operations and adds it to lx_bytes. REQUIRES: a plan that has not been planned before.
void plan_lx(device::CardPlan& plan, const LxOptions& options = {});

}  // namespace spyre::compiler
