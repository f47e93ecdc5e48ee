// A card plan as text, for people: one line per buffer and per device operation. Deterministic.
#pragma once

#include <string>

#include "plugins/spyre/compiler/card_plan.h"

namespace spyre::compiler {

// Before there is a plan: the sticks, restickified edges and axes known by then.
std::string card_text(const CardState& state);

}  // namespace spyre::compiler
