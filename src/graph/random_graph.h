// Random well-typed graphs with data to run them on: what property tests of the interpreter and of compilers feed on.
//
// A seed gives the same graph and data on every machine. A graph has 3 to 15 operators over one 16-bit dtype
// (conversions to others and back occur, and residual streams in f32), with a rows dimension or without, extents around
// and off powers of two, views, broadcasting and one or more outputs; every tensor operator occurs (no kv_store, no
// attention).
#pragma once

#include <cstdint>
#include <vector>

#include "graph/interpreter.h"

namespace spyre::graph {

struct RandomGraph {
  Graph graph;
  Bindings bindings;  // representable in the dtypes of the graph
  // Per output: how far the exact run may be from the fp32 run. Operators are chosen so that it stays small beside the
  // values; it is an estimate with a wide margin (rounding errors through the slope of each operator), not a bound.
  std::vector<double> tolerance;
};

struct RandomGraphOptions {
  int min_ops = 3, max_ops = 15;
  int64_t max_elements = 20000;  // of any value
  bool whole_sticks = false;     // most extents are multiples of 64: what a card need not pad
};

SPYRE_API RandomGraph random_graph(uint64_t seed, const RandomGraphOptions& options = {});

}  // namespace spyre::graph
