// Settings as Python gives them: a dict from vLLM's flag names to values, None for "unset". One table names each once;
// it serves reading, writing, and the message for a name that is not known.
#pragma once

#include <nanobind/nanobind.h>

#include "platform/config.h"

namespace spyre::python {

// Throws Error(kInvalidArgument) naming the setting: an unknown name (with the known ones), a wrong type, a number out
// of range. Does not look at the model.
platform::EngineConfig read_settings(const nanobind::dict& settings);

// Every setting of the table, as |config| has it. read_settings() of the result gives |config| again.
nanobind::dict write_settings(const platform::EngineConfig& config);

}  // namespace spyre::python
