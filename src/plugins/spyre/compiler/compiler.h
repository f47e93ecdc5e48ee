// From a graph to a program: verify the card's rules, choose extents and layouts, divide work, plan memory, emit device
// ops and the host plan. Knows operators, never architectures.
//
// A Compiler holds the cache of artifacts: a graph equal to one compiled before (up to names), with the same boundary,
// returns the same program.
// Single-threaded.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/dot_orders.h"
#include "graph/graph.h"
#include "graph/pass.h"
#include "plugins/spyre/compiler/boundary_axes.h"
#include "plugins/spyre/device/program.h"

namespace spyre::compiler {

struct CompileOptions {
  CpuFeatures features;  // capped: which kernels the host plan calls
  DotOrder bf16_order = DotOrder::kPair;
  int threads = 1;  // what the host plan divides work for (any number runs it)
  graph::PassOptions passes;
  bool verify_phases = false;  // of the card side: after each, not only after the last (card_passes.h)
};

// What lies between programs, where it is not the compiler's choice.
struct Boundary {
  BoundaryAxes axes;  // padding that neighbours have decided
  // The inputs and outputs (their indices) whose entries of dimension 0 lie one after another (device/entry_layout.h),
  // so that a program can write the beginning of a tensor that another one reads whole.
  std::vector<int32_t> entry_inputs, entry_outputs;
};

class Compiler {
 public:
  explicit Compiler(CompileOptions options) : options_(std::move(options)) {}

  // Throws Error(kRuleViolation) naming the rule, the operator and the remedy; Error(kInvalidArgument) for a graph that
  // does not verify.
  std::shared_ptr<const device::Program> compile(const graph::Graph& graph, const Boundary& boundary = {});

  // The text of |graph| after the pass that is named: of the graph itself after one of its own passes, of the card plan
  // after a phase of the card side (card_passes.h); "all": after each of them, under headings. Compiles anew, verifying
  // after every phase; nothing is cached. Throws Error(kInvalidArgument) for a name that no pass has.
  std::string text_after(const graph::Graph& graph, const std::string& pass, const Boundary& boundary = {}) const;
  // All of them, in order.
  static std::vector<std::string> pass_names();

  int64_t artifacts() const { return static_cast<int64_t>(cache_.size()); }
  int64_t compiles() const { return compiles_; }  // cache misses
  const std::map<std::string, std::shared_ptr<const device::Program>>& cache() const { return cache_; }

 private:
  CompileOptions options_;
  std::map<std::string, std::shared_ptr<const device::Program>> cache_;
  int64_t compiles_ = 0;
};

}  // namespace spyre::compiler
