#include "plugins/spyre/compiler/card_plan.h"

namespace spyre::compiler {
device::CardPlan emit_device_ops(const graph::Graph&, const Axes&, const Layouts&, RuleLog&) {
  return {};
}
}  // namespace spyre::compiler
