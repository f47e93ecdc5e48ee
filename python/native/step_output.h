// What one step gave, as Python objects: lists of ints and strings, and arrays that own the memory of the worker's
// tables (nothing is copied). See StepOutput in spyre_inference/_native.pyi for the shapes.
#pragma once

#include <nanobind/nanobind.h>

#include "platform/hosted_worker.h"

namespace spyre::python {

struct StepOutput {
  // The GIL is held.
  explicit StepOutput(platform::HostedOutput output);

  nanobind::list req_ids;
  nanobind::list token_ids;
  nanobind::object logprobs;  // a tuple of three arrays, or None
  nanobind::dict prompt_logprobs;
  nanobind::dict errors;
};

}  // namespace spyre::python
