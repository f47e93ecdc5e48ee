#include "plugins/spyre/compiler/check_calls.h"

#include "plugins/spyre/device/plan_calls.h"

namespace spyre::compiler {

int64_t check_calls(CardState& state) {
  const std::vector<device::CardCall> calls = device::plan_calls(state.graph, state.plan);
  const device::RuleMet met = [&](device::Rule rule) { ++state.log[rule]; };
  for (const device::CardCall& call : calls) check_card_call(call, met);
  return static_cast<int64_t>(calls.size());
}

}  // namespace spyre::compiler
