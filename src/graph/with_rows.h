// The same graph for another number of rows.
//
// No shape rule and no attribute depends on how many rows there are (type.h; -1 stands for them in a shape), so a graph
// of another bucket is the one at hand with another extent.
#pragma once

#include <cstdint>

#include "base/export.h"
#include "graph/graph.h"

namespace spyre::graph {

// |graph| with |rows| as the extent of every rows dimension: what the code that built it would have built for |rows|.
// Where a graph has rows of two kinds, all become |rows|. Not verified.
SPYRE_API Graph with_rows(Graph graph, int64_t rows);

}  // namespace spyre::graph
