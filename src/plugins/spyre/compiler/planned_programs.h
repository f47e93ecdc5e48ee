// The card plans of programs with the scratchpad planned (plan_lx.h), which compiling leaves to who asks, and how long
// they take by the "measured" figures. Each is made once. A program must outlive this. Not thread-safe.
#pragma once

#include <map>

#include "plugins/spyre/device/program.h"

namespace spyre::compiler {

struct PlannedProgram {
  device::CardPlan plan;
  double ns = 0;        // its bundles and the launch
  double calls_ns = 0;  // of that: attention and the KV store, by what a program knows of them
};

class PlannedPrograms {
 public:
  const PlannedProgram& of(const device::Program& program);

 private:
  std::map<const device::Program*, PlannedProgram> known_;
};

}  // namespace spyre::compiler
