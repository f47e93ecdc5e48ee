// vLLM's words for one step, read into ours. Duck-typed: attributes are looked up by name, so neither vLLM nor torch is
// needed, and SimpleNamespace serves in tests. Covers the V1 and the V2 contract of vLLM 0.29 to 0.33 alike.
//
// A field that is there, is not empty and has no meaning here (encoder inputs, speculative tokens, a LoRA request, ...)
// is refused by name: to ignore it would give wrong tokens. Fields that do not change what is computed are listed in
// the source with the reason. The GIL is held throughout.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "platform/hosted_worker.h"
#include "runner/step.h"

namespace spyre::python {

// A step, and which of its scheduled requests could not be read: their entries in |step| hold what could (block ids
// among it, when they are there), and are not to be run.
struct ScheduledStep {
  runner::Step step;
  platform::Refusals refused;
};

// A SchedulerOutput. What cannot be read refuses the requests it is about: a new request with a field that is wrong or
// not built is refused alone; a fault anywhere else refuses every scheduled request, and the finished ids are
// there nevertheless. Throws Error(kInvalidArgument) when not even the scheduled ids can be read: there is nobody to
// answer.
ScheduledStep read_scheduler_output(nanobind::handle output);

// A GrammarOutput: ids, and an int32 array [ids][ceil(vocab / 32)] of any strides. None gives none. Throws
// Error(kInvalidArgument) naming the field, and Error(kUnsupported) for rows of drafts.
std::optional<runner::GrammarMask> read_grammar_output(nanobind::handle output);

}  // namespace spyre::python
