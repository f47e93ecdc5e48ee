// HostEmitter: the state of emitting one host plan, and what a lowering may do with it.
//
// Every value of the graph gets a HostView: a window on a graph input, a parameter, an output, or the arena. Views
// (slices, transposes, most reshapes) cost nothing; a lowering that needs contiguous rows asks for them and a copy step
// is put in where they are not. Arena slots are packed by live ranges when all steps are known.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "plugins/spyre/compiler/compiler.h"
#include "plugins/spyre/compiler/host_phases.h"
#include "plugins/spyre/device/host_steps.h"

namespace spyre::compiler {

class HostEmitter {
 public:
  HostEmitter(const graph::Graph& graph, const CompileOptions& options);
  device::HostPlan emit();

  // --- for lowerings ---
  const graph::Graph& graph() const { return graph_; }
  const graph::Type& type(graph::ValueId value) const { return graph_.type(value); }
  const kernels::RowKernels& rows(DType dtype) const;
  const CompileOptions& options() const { return options_; }
  DotOrder order(DType dtype) const { return dtype == DType::kBF16 ? options_.bf16_order : DotOrder::kSequential; }

  const device::HostView& view(graph::ValueId value) const;
  // New storage for a result, row-major: the graph output's own, or the arena's.
  device::HostView define(graph::ValueId value);
  device::HostView temporary(const graph::Type& type);
  void alias(graph::ValueId value, device::HostView view);
  // |view|, or a copy of it whose last dimension is contiguous (or that is contiguous as a whole).
  device::HostView contiguous_rows(const device::HostView& view);
  device::HostView contiguous(const device::HostView& view);
  void copy(const device::HostView& from, const device::HostView& to);  // same extents; converts dtypes

  // The place of a view, for the step that is added next.
  device::HostPlace place(const device::HostView& view);
  template <typename Step>
  void add(std::unique_ptr<Step> step) {
    plan_.scratch_bytes = std::max(plan_.scratch_bytes, step->scratch_bytes());
    plan_.steps.push_back(std::move(step));
  }
  // The loop over all dimensions of |views[0]| but the last |inner|; the others broadcast to it.
  device::RowLoop loop(const std::vector<const device::HostView*>& views, int inner = 1) const;

  // The operator that defines |value|, if a lowering may fold it into its only user: null otherwise.
  const graph::Op* foldable(graph::ValueId value) const;
  // The same, if it is a convert of a value in |from|.
  const graph::Op* foldable_convert(graph::ValueId value, DType from) const;
  // The operator that gives |value|, if it is folded into the one that is being lowered: null otherwise.
  const graph::Op* folded_producer(graph::ValueId value) const;
  const std::vector<int32_t>& users(graph::ValueId value) const { return users_[value]; }
  bool is_output(graph::ValueId value) const;
  // Whether this program computes what |view| shows.
  bool is_computed(const device::HostView& view) const;
  // Whether |value| is a parameter that is stored in panels.
  bool in_panels(graph::ValueId value) const { return in_panels_[value]; }

 private:
  // A new slot for a tensor of |type|.
  int32_t add_slot(const graph::Type& type, device::SlotKind kind, int32_t index);
  void bind(graph::ValueId value, device::SlotKind kind, int32_t index);
  device::HostView arena_view(const graph::Type& type);
  void plan_folds();  // host_folds.cc, and what follows
  void fold_activation(const graph::Op& mul);
  void fold_norm(int32_t index);
  void fold_wide_norm(int32_t index);
  const graph::Op* foldable_sum(graph::ValueId sum, int32_t norm, int32_t at) const;
  void emit_outputs();

  const graph::Graph& graph_;
  const CompileOptions& options_;
  device::HostPlan plan_;
  std::vector<device::HostView> views_;
  std::vector<bool> defined_, folded_, in_panels_;
  std::vector<std::vector<int32_t>> users_;
  std::vector<bool> output_written_;
  std::vector<SlotUse> uses_;  // parallel to plan_.slots
};

// Row-major strides for |type|; the rows dimension grows with the run.
device::HostView row_major(const graph::Type& type, int32_t slot);

using HostLowering = void (*)(HostEmitter&, const graph::Op&);
const std::map<std::string_view, HostLowering>& host_lowerings();

// Registered by lower/host_*.cc; each adds its operators to the table.
void add_elementwise_lowerings(std::map<std::string_view, HostLowering>& table);
void add_matmul_lowerings(std::map<std::string_view, HostLowering>& table);
// A norm over fp32 that is folded into the convert of its result (host_folds.cc).
void emit_wide_norm(HostEmitter& emitter, const graph::Op& convert);
void add_norm_lowerings(std::map<std::string_view, HostLowering>& table);
void add_view_lowerings(std::map<std::string_view, HostLowering>& table);
void add_lookup_lowerings(std::map<std::string_view, HostLowering>& table);
void add_call_lowerings(std::map<std::string_view, HostLowering>& table);

}  // namespace spyre::compiler
