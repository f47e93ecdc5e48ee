// gather_rows, rotary, rotate_2x2.
#include "base/error.h"
#include "plugins/spyre/compiler/host_emitter.h"
#include "plugins/spyre/device/rules.h"

namespace spyre::compiler {
namespace {

using device::HostDim;
using device::HostView;

void lower_gather_rows(HostEmitter& e, const graph::Op& op) {
  const HostView table = e.contiguous(e.view(op.inputs[0]));
  const HostView ids = e.view(op.inputs[1]);
  const HostView out = e.define(op.outputs[0]);
  int64_t n = 1;
  for (int d = 1; d < table.rank(); ++d) n *= table.dims[d].extent;
  auto step = std::make_unique<device::GatherStep>();
  step->n = n;
  step->table_rows = table.dims[0].extent;
  step->element_bytes = size_of(out.dtype);
  step->table_computed = e.is_computed(table);
  HostView out_rows = out;  // one iteration per id
  out_rows.dims.resize(1);
  step->loop = e.loop({&out_rows, &ids}, 0);
  step->ids = e.place(ids);
  step->table = e.place(table);
  step->out = e.place(out);
  e.add(std::move(step));
}

template <typename Step>
void emit_rotation(HostEmitter& e, const graph::Op& op, device::HostPlace Step::* table_place) {
  const HostView x = e.contiguous_rows(e.view(op.inputs[0]));
  const HostView rotation = e.contiguous(e.view(op.inputs[1]));
  const HostView out = e.define(op.outputs[0]);
  if (!is_16bit_float(out.dtype)) {
    device::refuse(device::Rule::kFp32Ops, fmt::format("{} of {}", op.name(), to_string(out.dtype)));
  }
  auto step = std::make_unique<Step>();
  step->kernels = &e.rows(out.dtype);
  step->n = out.dims.back().extent;
  // Per (token, head); the table advances with the token only.
  HostView table = rotation;
  table.dims = {rotation.dims[0], HostDim{.extent = 1, .stride = 0}, HostDim{.extent = step->n, .stride = 1}};
  step->loop = e.loop({&out, &x, &table});
  step->x = e.place(x);
  (*step).*table_place = e.place(rotation);
  step->out = e.place(out);
  e.add(std::move(step));
}

void lower_rotary(HostEmitter& e, const graph::Op& op) {
  emit_rotation<device::RotaryStep>(e, op, &device::RotaryStep::cos_sin);
}
void lower_rotate_2x2(HostEmitter& e, const graph::Op& op) {
  emit_rotation<device::RotateStep>(e, op, &device::RotateStep::rotation);
}

}  // namespace

void add_lookup_lowerings(std::map<std::string_view, HostLowering>& table) {
  table["gather_rows"] = lower_gather_rows;
  table["rotary"] = lower_rotary;
  table["rotate_2x2"] = lower_rotate_2x2;
}

}  // namespace spyre::compiler
