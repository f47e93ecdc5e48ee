// The rewrites that every graph goes through before it is laid out, in order. None changes a rounding.
#pragma once

#include <vector>

#include "graph/pass.h"

namespace spyre::compiler {

const std::vector<graph::Pass>& graph_passes();

// Removes operators whose results nobody uses. States and outputs count as uses.
bool remove_dead_ops(graph::Graph& graph);
// Makes equal operators on equal operands one. Calls (kv_store, attention) are left alone.
bool share_equal_ops(graph::Graph& graph);

}  // namespace spyre::compiler
