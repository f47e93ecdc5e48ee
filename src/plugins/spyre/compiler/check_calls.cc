#include "plugins/spyre/compiler/check_calls.h"

#include "plugins/spyre/device/plan_calls.h"

namespace spyre::compiler {

int64_t check_calls(CardState& state) {
  return device::check_plan_calls(state.graph, state.plan, [&](device::Rule rule) { ++state.log[rule]; });
}

}  // namespace spyre::compiler
