// One function for each part of the module; module.cc calls them in this order.
#pragma once

#include <nanobind/nanobind.h>

namespace spyre::python {

void bind_errors(nanobind::module_& m);         // spyre::Error -> the classes of spyre_inference.errors
void bind_settings(nanobind::module_& m);       // build_id, kernels, complete_config, check_sampling_params
void bind_hosted_worker(nanobind::module_& m);  // HostedWorker, StepOutput
void bind_engine(nanobind::module_& m);         // Engine

}  // namespace spyre::python
