#include "plugins/spyre/compiler/planned_programs.h"

#include "plugins/spyre/compiler/plan_lx.h"
#include "plugins/spyre/device/op_work.h"

namespace spyre::compiler {

const PlannedProgram& PlannedPrograms::of(const device::Program& program) {
  const auto [found, inserted] = known_.try_emplace(&program);
  PlannedProgram& made = found->second;
  if (!inserted) return made;
  made.plan = program.card;
  plan_lx(made.plan);
  made.ns = device::measured_costs().launch_ns.value;
  for (const device::Bundle& bundle : device::bundles_of(program.graph, made.plan, device::measured_costs())) {
    made.ns += bundle.time.total();
    const std::string& name = made.plan.ops[bundle.first].name;  // calls are bundles of their own
    if (name == "attention" || name == "kv_store") made.calls_ns += bundle.time.total();
  }
  return made;
}

}  // namespace spyre::compiler
