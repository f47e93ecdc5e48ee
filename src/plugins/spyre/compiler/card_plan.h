// The card side of compilation, in phases. Each phase is one file with its like-named test.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "plugins/spyre/device/axis.h"
#include "plugins/spyre/device/program.h"
#include "plugins/spyre/device/rules.h"

namespace spyre::compiler {

// Counts the checks a graph passed, by rule number: what `inspect` shows as "rules met".
using RuleLog = std::map<std::string, int64_t>;

// Counts one check of |rule|; refuses when it failed. |detail| makes the text of the refusal.
template <typename Detail>
void require_rule(RuleLog& log, device::Rule rule, bool passed, Detail&& detail) {
  if (!passed) device::refuse(rule, detail());
  ++log[std::string(device::info(rule).number)];
}

// "matmul %7", for messages.
std::string describe(const graph::Graph& graph, const graph::Op& op);

// Phase 1 (verify_rules.cc): the rules that speak of operators and types alone (L-01 .. L-05, L-08, L-19, L-20).
void verify_rules(const graph::Graph& graph, RuleLog& log);

// Phase 2 (assign_extents.cc): the axes of every value, [value][dimension]. Dimensions that operators tie together get
// one axis. Where a slice, a concatenation, a regrouping or a rotation cuts the stick dimension, the cut is put on a
// whole stick; a matmul's reduced and generated dimensions are filled up to whole sticks; the K and V heads of a cache
// get one card width. So head padding comes out of structure alone. A rows dimension is never padded: its bucket is its
// extent. The axes of a state are [kv heads, head size] of its keys; values lie in heads of the same card width.
using Axes = std::vector<std::vector<device::Axis>>;
Axes assign_extents(const graph::Graph& graph, RuleLog& log);

// Phase 3 (choose_layouts.cc): which dimension of each value lies in the stick, and where a value must be re-laid for a
// consumer. The choice depends on the operators alone (plan_sticks.h, L-06, L-07, L-09, L-16, L-17) and is what phase 2
// worked with; this phase checks the axes against it: L-10 .. L-13, L-16, L-18.
struct Layouts {
  std::vector<int> stick;  // per value: dimension, or -1 = sparse (one element per stick) or scalar
  struct Relay {
    int32_t op = 0;  // consumer
    int32_t operand = 0;
    int to_stick = 0;
  };
  std::vector<Relay> relays;
};
Layouts choose_layouts(const graph::Graph& graph, const Axes& axes, RuleLog& log);

// What a value is on the card, by its axes and stick.
device::TensorSpec card_spec(const graph::Type& type, const std::vector<device::Axis>& axes, int stick);

// Phase 4 (emit_device_ops.cc, lower/card_ops.cc): device operations and their buffers, with work division
// (divide_work.cc, L-15), the pool plan (plan_pool.cc) and time estimates (device/cost.h).
device::CardPlan emit_device_ops(const graph::Graph& graph, const Axes& axes, const Layouts& layouts, RuleLog& log);

}  // namespace spyre::compiler
