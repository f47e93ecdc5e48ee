// matmul and linear: a GEMM over stick panels. A parameter is in panels already; a computed operand is packed first.
#include "base/error.h"
#include "plugins/spyre/compiler/host_emitter.h"
#include "plugins/spyre/device/rules.h"
#include "plugins/spyre/kernels/panels.h"

namespace spyre::compiler {
namespace {

using device::HostDim;
using device::HostView;

// Splits a view into its batch dimensions and the last two.
HostView leading(const HostView& view, int count) {
  HostView lead = view;
  lead.dims.resize(count);
  return lead;
}

// Packs [..., K, N] (or, with |transposed|, [N, K]) into panels in the arena; the result has the batch dimensions.
HostView pack(HostEmitter& e, HostView source, bool transposed) {
  const int batch = source.rank() - 2;
  int k_dim = transposed ? batch + 1 : batch, n_dim = transposed ? batch : batch + 1;
  auto unit = [&](int d) { return source.dims[d].stride == 1 || source.dims[d].extent == 1; };
  if (!unit(k_dim) && !unit(n_dim)) source = e.contiguous(source);
  const int64_t k = source.dims[k_dim].extent, n = source.dims[n_dim].extent;
  const kernels::PanelLayout layout{e.order(source.dtype), k, n};
  graph::Type type{.dtype = source.dtype};
  for (int d = 0; d < batch; ++d) type.dims.push_back({source.dims[d].extent, source.dims[d].per_row > 0});
  type.dims.push_back({layout.elements(), false});
  HostView panels = leading(e.temporary(type), batch);
  auto step = std::make_unique<device::PackStep>();
  step->order = layout.order;
  step->k = k;
  step->n = n;
  const bool n_unit = source.dims[n_dim].stride == 1 || n == 1;
  step->n_stride = n_unit ? 1 : source.dims[n_dim].stride;
  step->k_stride = n_unit ? source.dims[k_dim].stride : 1;
  const HostView lead = leading(source, batch);
  step->groups = e.loop({&lead, &panels}, 0);
  step->source = e.place(source);
  step->panels = e.place(panels);
  e.add(std::move(step));
  return panels;
}

void emit_gemm(HostEmitter& e, const graph::Op& op, bool transposed) {
  const graph::ValueId result = op.outputs[0];
  const DType dtype = e.type(op.inputs[0]).dtype;
  if (!is_16bit_float(dtype)) {
    device::refuse(device::Rule::kMatmulDType, fmt::format("{} of {} operands", op.name(), to_string(dtype)));
  }
  HostView x = e.contiguous_rows(e.view(op.inputs[0]));
  const bool packed = e.in_panels(op.inputs[1]);
  HostView panels = packed ? leading(e.view(op.inputs[1]), 0) : pack(e, e.view(op.inputs[1]), transposed);
  const HostView out = e.define(result);

  auto step = std::make_unique<device::GemmStep>();
  step->kernels = &kernels::select_kernels(e.options().features, dtype, e.order(dtype));
  step->k = x.dims.back().extent;
  step->n = out.dims.back().extent;
  step->out_f32 = out.dtype == DType::kF32;
  // Rows of one GEMM: the innermost dimension before K, grown outward while both sides walk in one stride. Batch
  // dimensions stay apart, as each has panels of its own.
  const int batch = panels.rank();
  HostDim rows{.extent = 1, .stride = step->k};
  int64_t ldo = step->n;
  int first = x.rank() - 1;  // dimensions [first, rank - 1) are the rows
  if (first > batch) {
    --first;
    rows = x.dims[first];
    ldo = out.dims[first].stride;
    while (first > batch) {
      const HostDim &outer = x.dims[first - 1], &outer_out = out.dims[first - 1];
      if (rows.per_row > 0 || outer.stride != rows.stride * rows.extent || outer_out.stride != ldo * rows.extent) break;
      rows.per_row = outer.per_row * rows.extent;
      rows.extent *= outer.extent;
      --first;
    }
  }
  step->rows = rows;
  step->ldo = ldo;
  const HostView x_groups = leading(x, first), out_groups = leading(out, first);
  HostView panel_groups = panels;
  // Right-aligned broadcasting would shift the batch dimensions: give the loop the missing ones with stride 0.
  panel_groups.dims.resize(first, HostDim{.extent = 1, .stride = 0});
  step->groups = e.loop({&x_groups, &out_groups, &panel_groups}, 0);
  step->a = e.place(x);
  step->panels = e.place(panels);
  step->out = e.place(out);
  e.add(std::move(step));
}

void lower_matmul(HostEmitter& e, const graph::Op& op) {
  emit_gemm(e, op, false);
}
void lower_linear(HostEmitter& e, const graph::Op& op) {
  emit_gemm(e, op, true);
}

}  // namespace

void add_matmul_lowerings(std::map<std::string_view, HostLowering>& table) {
  table["matmul"] = lower_matmul;
  table["linear"] = lower_linear;
}

}  // namespace spyre::compiler
