// The host side of compilation: buffers on logical extents, fusions, and steps that call kernels.
#pragma once

#include "graph/graph.h"
#include "plugins/spyre/compiler/compiler.h"
#include "plugins/spyre/device/host_plan.h"

namespace spyre::compiler {

// The form in which each parameter of |graph| is read, in the graph's order: panels where every use is a matmul's or a
// linear's weight, row-major otherwise.
std::vector<device::HostForm> parameter_forms(const graph::Graph& graph);

device::HostPlan emit_host_plan(const graph::Graph& graph, const CompileOptions& options);

}  // namespace spyre::compiler
