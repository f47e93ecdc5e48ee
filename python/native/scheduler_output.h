// vLLM's words for one step, read into ours. Duck-typed: attributes are looked up by name, so neither vLLM nor torch is
// needed, and SimpleNamespace serves in tests. Covers the V1 and the V2 contract of vLLM 0.29 to 0.33 alike.
//
// A field that is there, is not empty and has no meaning here (encoder inputs, speculative tokens, a LoRA request, ...)
// throws Error(kUnsupported) naming it: to ignore it would give wrong tokens. Fields that do not change what is
// computed are listed in the source with the reason. The GIL is held throughout.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <vector>

#include "runner/step.h"

namespace spyre::python {

// A SchedulerOutput. Throws Error(kInvalidArgument) naming the field for a value of the wrong type or a number that
// does not fit.
runner::Step read_scheduler_output(nanobind::handle output);

// The ids that |output| schedules, and nothing else: for an answer when it cannot be read as a whole.
std::vector<runner::RequestId> read_scheduled_ids(nanobind::handle output);

// A GrammarOutput: ids, and an int32 array [rows, ceil(vocab / 32)]. None gives none.
std::optional<runner::GrammarMask> read_grammar_output(nanobind::handle output);

}  // namespace spyre::python
