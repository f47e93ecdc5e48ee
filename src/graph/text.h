// The text form of a graph: what tests are written in, what PassOptions::dump_after prints and what canonical_text() is made of.
//
//   graph mlp {
//     input %x : f16[@4,576]            # @ marks the rows dimension
//     param %gate_up : f16[576,3072]
//     param %down : f16[1536,576]
//     state %kv : kv f16[3,64]
//     input %batch : batch
//     %0 : f16[@4,3072] = matmul(%x, %gate_up)
//     %1 = slice(%0) {axis=1, start=0, size=1536}     # a result type may be left out: it is inferred
//     ...
//     return %8
//   }
//
// parse(print(g)) equals g up to the numbering of values (print writes inputs, parameters and states before operators,
// and leaves out attributes that have their default). '#' starts a comment. Attribute values: 3, 1e-05, "text",
// [1,2,3]. The `return` line is required and last. An encoding other than dense follows the type of a parameter.
// Parsing is safe on any bytes: errors are Error(kInvalidArgument, "line 7: ..."), sizes are bounded by kMaxRank,
// kMaxExtent and 10^6 lines. parse() verifies what it read.
#pragma once

#include <string>
#include <string_view>

#include "graph/graph.h"

namespace spyre::graph {

SPYRE_API std::string print(const Graph& graph);
SPYRE_API std::string to_string(const Attribute& attribute);  // as in the text form
SPYRE_API Graph parse(std::string_view text);

}  // namespace spyre::graph
