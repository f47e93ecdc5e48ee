// What holds between the phases: a card plan whose operations read what was written, whose views lie inside what they
// view, and that keeps the limits of the card which speak of a whole plan (L-42 .. L-49). As much of it as there is by
// then is checked: splits once there are splits, places in the pool once it is planned.
//
// A broken limit of the card is refused by its number; anything else is our own mistake: Error(kInternal) that names
// the phase.
#pragma once

#include <string_view>

#include "plugins/spyre/compiler/card_plan.h"

namespace spyre::compiler {

void verify_card_plan(CardState& state, std::string_view after);

}  // namespace spyre::compiler
