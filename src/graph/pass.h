// The pass driver: runs named graph-to-graph rewrites in order, and gives each the same four things for free: a timer,
// a verifier after it, a switch to turn it off, and a dump on request.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace spyre::graph {

struct Pass {
  std::string name;                 // verb-object: "fold-views"
  std::function<bool(Graph&)> run;  // true when it changed the graph
  bool required = false;            // a required pass cannot be switched off
};

struct PassOptions {
  std::vector<std::string> disabled;                                           // names of passes to skip
  std::string dump_after;                                                      // name of a pass, "all", or empty
  std::function<void(const std::string& pass, const std::string& text)> dump;  // default: stderr
};

struct PassRecord {
  std::string name;
  bool ran = false, changed = false;
  std::chrono::nanoseconds time{0};
};

// Throws Error(kInvalidArgument) for an unknown name in |options| or an attempt to disable a required pass;
// Error(kInternal) naming the pass when the graph no longer verifies after it.
SPYRE_API std::vector<PassRecord> run_passes(Graph& graph, const std::vector<Pass>& passes,
                                             const PassOptions& options = {});

}  // namespace spyre::graph
