// The card's time for one run of a program, attention included: what a program cannot know when it is compiled is how
// many keys a step reads.
#pragma once

#include "plugins/spyre/attention/step_tables.h"
#include "plugins/spyre/compiler/attention_program.h"
#include "plugins/spyre/compiler/planned_programs.h"
#include "plugins/spyre/device/program.h"

namespace spyre::device {

// The bundles of the plan with its scratchpad ("measured" figures), its calls of attention replaced by the programs
// that they run: for each sequence of the step the one of its variant (padded query rows and padded blocks), one after
// the other, or the one of the padded grid of a batched decode; and its KV stores by theirs. |tables| may be null for a
// program without attention. |times| and |planned| keep what they make: the first step of a variant costs a plan, the
// next one a look-up.
double estimate_step_ns(const Program& program, const attention::StepTables* tables, compiler::AttentionTimes& times,
                        compiler::PlannedPrograms& planned);

}  // namespace spyre::device
