#include "plugins/spyre/compiler/host_emitter.h"

#include <algorithm>

#include "base/error.h"
#include "plugins/spyre/compiler/host_emit.h"
#include "plugins/spyre/device/rules.h"

namespace spyre::compiler {

using device::HostDim;
using device::HostPlace;
using device::HostView;
using device::SlotKind;

HostView row_major(const graph::Type& type, int32_t slot) {
  HostView view{.slot = slot, .dtype = type.dtype};
  view.dims.resize(type.dims.size());
  int64_t stride = 1;
  for (size_t d = type.dims.size(); d-- > 0;) {
    view.dims[d] = {.extent = type.dims[d].extent, .stride = stride, .per_row = type.dims[d].rows ? 1 : 0};
    stride *= type.dims[d].extent;
  }
  return view;
}

HostEmitter::HostEmitter(const graph::Graph& graph, const CompileOptions& options)
    : graph_(graph),
      options_(options),
      views_(graph.values.size()),
      defined_(graph.values.size(), false),
      folded_(graph.ops.size(), false),
      in_panels_(graph.values.size(), false),
      users_(graph.users()),
      output_written_(graph.outputs.size(), false) {
  const std::vector<device::HostForm> forms = parameter_forms(graph);
  for (size_t i = 0; i < forms.size(); ++i) in_panels_[graph.parameters[i]] = !device::is_row_major(forms[i]);
}

const kernels::RowKernels& HostEmitter::rows(DType dtype) const {
  return kernels::select_row_kernels(options_.features, dtype);
}

const HostView& HostEmitter::view(graph::ValueId value) const {
  SPYRE_CHECK(defined_[value], "%{} is read before it is computed", graph_.value(value).name);
  return views_[value];
}

int32_t HostEmitter::add_slot(const graph::Type& type, SlotKind kind, int32_t index) {
  device::HostSlot slot{.kind = kind, .index = index};
  const auto size = static_cast<int64_t>(size_of(type.dtype));
  if (type.rows_axis() == 0) slot.row_bytes = type.elements() / type.dims[0].extent * size;
  plan_.slots.push_back(slot);
  uses_.push_back({.bytes = static_cast<size_t>(std::max<int64_t>(type.elements(), 1) * size)});
  return static_cast<int32_t>(plan_.slots.size()) - 1;
}

void HostEmitter::bind(graph::ValueId value, SlotKind kind, int32_t index) {
  views_[value] = row_major(type(value), add_slot(type(value), kind, index));
  defined_[value] = true;
}

HostView HostEmitter::arena_view(const graph::Type& type) {
  return row_major(type, add_slot(type, SlotKind::kArena, 0));
}

HostView HostEmitter::temporary(const graph::Type& type) {
  return arena_view(type);
}

HostView HostEmitter::define(graph::ValueId value) {
  SPYRE_CHECK(!defined_[value], "%{} is computed twice", graph_.value(value).name);
  const auto output = std::find(graph_.outputs.begin(), graph_.outputs.end(), value);
  if (output != graph_.outputs.end()) {
    const auto index = static_cast<int32_t>(output - graph_.outputs.begin());
    output_written_[index] = true;
    bind(value, SlotKind::kOutput, index);
  } else {
    views_[value] = arena_view(type(value));
    defined_[value] = true;
  }
  return views_[value];
}

void HostEmitter::alias(graph::ValueId value, HostView view) {
  views_[value] = std::move(view);
  defined_[value] = true;
}

HostPlace HostEmitter::place(const HostView& view) {
  SlotUse& use = uses_[view.slot];
  const auto step = static_cast<int32_t>(plan_.steps.size());
  if (use.first < 0) use.first = step;
  use.last = std::max(use.last, step);
  return {view.slot, view.offset};
}

device::RowLoop HostEmitter::loop(const std::vector<const HostView*>& views, int inner) const {
  const HostView& lead = *views[0];
  const int outer = std::max(lead.rank() - inner, 0);
  const std::vector<HostDim> dims(lead.dims.begin(), lead.dims.begin() + outer);
  std::vector<std::vector<int64_t>> strides;
  for (const HostView* view : views) {
    std::vector<int64_t> s(outer, 0);
    // Right-aligned, as operands broadcast.
    const int shift = lead.rank() - view->rank();
    for (int d = std::max(shift, 0); d < outer; ++d) {
      const HostDim& dim = view->dims[d - shift];
      s[d] = dim.extent == 1 && dim.per_row == 0 ? 0 : dim.stride;
    }
    strides.push_back(std::move(s));
  }
  return device::RowLoop(dims, strides);
}

void HostEmitter::copy(const HostView& from, const HostView& to) {
  SPYRE_CHECK(from.rank() == to.rank());
  auto step = std::make_unique<device::CopyStep>();
  step->loop = loop({&to, &from});
  step->n = to.rank() == 0 ? 1 : to.dims.back().extent;
  step->x = place(from);
  step->out = place(to);
  step->from = from.dtype;
  step->to = to.dtype;
  const DType half = from.dtype == DType::kF32 ? to.dtype : from.dtype;
  if (from.dtype != to.dtype && (from.dtype == DType::kF32 || to.dtype == DType::kF32)) step->kernels = &rows(half);
  step->x_stride = from.rank() == 0 ? 1 : from.dims.back().stride;
  step->out_stride = to.rank() == 0 ? 1 : to.dims.back().stride;
  // A last dimension that grows with the run is walked by the loop, one element a row.
  if (to.rank() > 0 && to.dims.back().per_row > 0) {
    step->loop = loop({&to, &from}, 0);
    step->n = 1;
  }
  add(std::move(step));
}

namespace {

graph::Type contiguous_type(const HostView& view) {
  graph::Type type{.dtype = view.dtype};
  for (const HostDim& dim : view.dims) type.dims.push_back({dim.extent, dim.per_row > 0});
  return type;
}

bool is_contiguous(const HostView& view) {
  int64_t stride = 1;
  for (int d = view.rank() - 1; d >= 0; --d) {
    if (view.dims[d].extent != 1 && view.dims[d].stride != stride) return false;
    stride *= view.dims[d].extent;
  }
  return true;
}

}  // namespace

HostView HostEmitter::contiguous_rows(const HostView& view) {
  const bool last_grows = view.rank() > 0 && view.dims.back().per_row > 0;
  if (view.last_contiguous() && !last_grows) return view;
  return contiguous(view);
}

HostView HostEmitter::contiguous(const HostView& view) {
  if (is_contiguous(view)) return view;
  const HostView made = arena_view(contiguous_type(view));
  copy(view, made);
  return made;
}

bool HostEmitter::is_output(graph::ValueId value) const {
  return std::find(graph_.outputs.begin(), graph_.outputs.end(), value) != graph_.outputs.end();
}

bool HostEmitter::is_computed(const HostView& view) const {
  const SlotKind kind = plan_.slots[view.slot].kind;
  return kind == SlotKind::kArena || kind == SlotKind::kOutput;
}

device::HostPlan HostEmitter::emit() {
  auto bind_all = [this](const std::vector<graph::ValueId>& values, SlotKind kind) {
    for (size_t i = 0; i < values.size(); ++i) bind(values[i], kind, static_cast<int32_t>(i));
  };
  bind_all(graph_.inputs, SlotKind::kInput);
  bind_all(graph_.parameters, SlotKind::kParameter);
  bind_all(graph_.states, SlotKind::kState);
  plan_folds();
  for (size_t i = 0; i < graph_.ops.size(); ++i) {
    const graph::Op& op = graph_.ops[i];
    if (folded_[i]) continue;
    const auto lowering = host_lowerings().find(op.name());
    if (lowering == host_lowerings().end()) {
      device::refuse(device::Rule::kNoLowering, fmt::format("operator {} has no host lowering", op.name()));
    }
    lowering->second(*this, op);
  }
  emit_outputs();
  plan_phases(plan_, uses_, options_.threads);
  plan_arena(plan_, uses_);
  return std::move(plan_);
}

void HostEmitter::emit_outputs() {
  for (size_t i = 0; i < graph_.outputs.size(); ++i) {
    if (output_written_[i]) continue;
    const graph::ValueId value = graph_.outputs[i];
    if (type(value).kind != graph::TypeKind::kTensor) continue;
    copy(view(value), row_major(type(value), add_slot(type(value), SlotKind::kOutput, static_cast<int32_t>(i))));
  }
}

const std::map<std::string_view, HostLowering>& host_lowerings() {
  static const std::map<std::string_view, HostLowering> table = [] {
    std::map<std::string_view, HostLowering> made;
    add_elementwise_lowerings(made);
    add_matmul_lowerings(made);
    add_norm_lowerings(made);
    add_view_lowerings(made);
    add_lookup_lowerings(made);
    add_call_lowerings(made);
    return made;
  }();
  return table;
}

device::HostPlan emit_host_plan(const graph::Graph& graph, const CompileOptions& options) {
  return HostEmitter(graph, options).emit();
}

std::vector<device::HostForm> parameter_forms(const graph::Graph& graph) {
  const std::vector<std::vector<int32_t>> users = graph.users();
  std::vector<device::HostForm> forms;
  for (graph::ValueId parameter : graph.parameters) {
    const bool used = !users[parameter].empty();
    bool matmul = used, linear = used, gather = used;
    for (int32_t user : users[parameter]) {
      const graph::Op& op = graph.ops[user];
      const bool twice = std::count(op.inputs.begin(), op.inputs.end(), parameter) > 1;
      const bool as_weight = !twice && op.inputs.size() == 2 && op.inputs[1] == parameter &&
                             is_16bit_float(graph.type(parameter).dtype) && graph.type(parameter).rank() == 2;
      matmul = matmul && as_weight && op.name() == "matmul";
      linear = linear && as_weight && op.name() == "linear";
      gather = gather && op.name() == "gather_rows" && op.inputs[0] == parameter;
    }
    forms.push_back(matmul   ? device::HostForm::kPanels
                    : linear ? device::HostForm::kPanelsOutIn
                    : gather ? device::HostForm::kGatherTable
                             : device::HostForm::kRowMajor);
  }
  return forms;
}

}  // namespace spyre::compiler
