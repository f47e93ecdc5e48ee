// A trace as the runner compiles it: its segments, what of their padding others have decided, and which of their
// results are those of a block. Made from what the tracer recorded: as it is, or with a segment per operator (eager).
#pragma once

#include <cstdint>
#include <vector>

#include "nn/tracer.h"
#include "plugins/spyre/compiler/boundary_axes.h"

namespace spyre::worker {

struct RunTrace : nn::Trace {
  std::vector<compiler::BoundaryAxes> axes;  // per segment
  // Per segment and output: which output of the segment that was traced it is; -1: none, a value inside of it.
  std::vector<std::vector<int64_t>> traced_output;

  // As traced: every segment decides alone, all its outputs are its own.
  static RunTrace whole(nn::Trace trace);
  // Every operator a segment, in the place of the segment that it was part of.
  static RunTrace eager(const nn::Trace& trace);
};

}  // namespace spyre::worker
