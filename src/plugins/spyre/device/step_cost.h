// The card's time for one run of a program, attention included: what a program cannot know when it is compiled is how
// many keys a step reads.
#pragma once

#include "plugins/spyre/attention/step_tables.h"
#include "plugins/spyre/device/cost.h"
#include "plugins/spyre/device/program.h"

namespace spyre::device {

// The plan's own estimate ("measured" figures) and, for each attention operation, what the step's sequences take in the
// variants they run in: padded query rows and padded blocks, one after the other, or the padded grid of a batched
// decode. |tables| may be null for a program without attention.
double estimate_step_ns(const Program& program, const attention::StepTables* tables);

}  // namespace spyre::device
