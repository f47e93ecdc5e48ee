// The card side of compilation, in phases. Each phase is one file with its like-named test.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "plugins/spyre/device/axis.h"
#include "plugins/spyre/device/program.h"

namespace spyre::compiler {

// Counts the checks a graph passed, by rule number: what `inspect` shows as "rules met".
using RuleLog = std::map<std::string, int64_t>;

// Phase 1 (verify_rules.cc): the rules that speak of operators and types alone (L-01 .. L-05, L-08, L-14, L-19, L-20,
// ...).
void verify_rules(const graph::Graph& graph, RuleLog& log);

// Phase 2 (assign_extents.cc): the axes of every value, [value][dimension]. Dimensions that operators tie together get
// one axis; slices and reshapes give it its segments; rotary heads need halves of whole sticks (L-12), matmul and slice
// parts whole sticks; two needs that differ are refused (L-18). A rows dimension is never padded here: its bucket is
// its extent.
using Axes = std::vector<std::vector<device::Axis>>;
Axes assign_extents(const graph::Graph& graph, RuleLog& log);

// Phase 3 (choose_layouts.cc): which dimension of each value lies in the stick, and where a value must be re-laid for a
// consumer. Refuses L-06, L-07, L-09, L-10, L-11, L-16, L-17, L-21.
struct Layouts {
  std::vector<int> stick;  // per value: dimension, or -1 = sparse
  struct Relay {
    int32_t op = 0;  // consumer
    int32_t operand = 0;
    int to_stick = 0;
  };
  std::vector<Relay> relays;
};
Layouts choose_layouts(const graph::Graph& graph, const Axes& axes, RuleLog& log);

// Phase 4 (emit_device_ops.cc, lower/*.cc): device operations and their buffers, with work division (divide_work.cc,
// L-15), the pool plan (plan_pool.cc) and time estimates (device/cost.h).
device::CardPlan emit_device_ops(const graph::Graph& graph, const Axes& axes, const Layouts& layouts, RuleLog& log);

}  // namespace spyre::compiler
