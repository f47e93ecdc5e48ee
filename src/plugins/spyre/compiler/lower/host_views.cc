// Views: slice and transpose always, reshape where strides allow; concat and broadcast write.
#include <optional>

#include "base/error.h"
#include "plugins/spyre/compiler/host_emitter.h"

namespace spyre::compiler {
namespace {

using device::HostDim;
using device::HostView;

// |view| regrouped to |type|'s dimensions without moving an element, if its strides allow. Both are walked from the
// innermost dimension outward, matching groups of equal size; inside a group of the source every dimension must
// continue the next inner one.
std::optional<HostView> regroup(const HostView& view, const graph::Type& type) {
  HostView out = view;
  out.dims.assign(type.dims.size(), {});
  int s = view.rank() - 1;
  int d = static_cast<int>(type.dims.size()) - 1;
  while (d >= 0 || s >= 0) {
    // Extents of 1 carry no elements.
    if (s >= 0 && view.dims[s].extent == 1 && view.dims[s].per_row == 0) {
      --s;
      continue;
    }
    if (d >= 0 && type.dims[d].extent == 1 && !type.dims[d].rows) {
      out.dims[d] = {.extent = 1, .stride = 0};
      --d;
      continue;
    }
    if (s < 0 || d < 0) return std::nullopt;
    const int64_t unit = view.dims[s].stride;
    int64_t source = view.dims[s].extent, target = type.dims[d].extent;
    out.dims[d] = {.extent = target, .stride = unit, .per_row = type.dims[d].rows ? 1 : 0};
    int64_t stride = unit * target;
    while (source != target) {
      if (source < target) {
        if (s == 0) return std::nullopt;
        --s;
        if (view.dims[s].extent != 1 && view.dims[s].stride != unit * source) return std::nullopt;
        source *= view.dims[s].extent;
      } else {
        if (d == 0) return std::nullopt;
        --d;
        out.dims[d] = {.extent = type.dims[d].extent, .stride = stride, .per_row = type.dims[d].rows ? 1 : 0};
        stride *= type.dims[d].extent;
        target *= type.dims[d].extent;
      }
    }
    // The rows dimension stays a dimension of its own (a constraint of reshape); only extents of 1 may sit beside it.
    --s;
    --d;
  }
  return out;
}

void lower_reshape(HostEmitter& e, const graph::Op& op) {
  const graph::Type& type = e.type(op.outputs[0]);
  const HostView x = e.view(op.inputs[0]);
  if (const std::optional<HostView> view = regroup(x, type)) return e.alias(op.outputs[0], *view);
  const std::optional<HostView> view = regroup(e.contiguous(x), type);
  SPYRE_CHECK(view.has_value(), "reshape to {}", type.to_string());
  e.alias(op.outputs[0], *view);
}

void lower_transpose(HostEmitter& e, const graph::Op& op) {
  const HostView& x = e.view(op.inputs[0]);
  HostView view = x;
  const std::vector<int64_t>& perm = op.ints_attr("perm");
  for (size_t d = 0; d < perm.size(); ++d) view.dims[d] = x.dims[perm[d]];
  e.alias(op.outputs[0], std::move(view));
}

void lower_slice(HostEmitter& e, const graph::Op& op) {
  HostView view = e.view(op.inputs[0]);
  HostDim& dim = view.dims[op.int_attr("axis")];
  view.offset += op.int_attr("start") * dim.stride;
  dim.extent = op.int_attr("size");
  e.alias(op.outputs[0], std::move(view));
}

void lower_concat(HostEmitter& e, const graph::Op& op) {
  const auto axis = static_cast<size_t>(op.int_attr("axis"));
  const HostView out = e.define(op.outputs[0]);
  int64_t start = 0;
  for (graph::ValueId input : op.inputs) {
    HostView part = out;
    part.dims[axis].extent = e.type(input).dims[axis].extent;
    part.offset += start * out.dims[axis].stride;
    start += part.dims[axis].extent;
    e.copy(e.view(input), part);
  }
}

void lower_broadcast(HostEmitter& e, const graph::Op& op) {
  const HostView& x = e.view(op.inputs[0]);
  const HostView out = e.define(op.outputs[0]);
  HostView spread = out;
  spread.slot = x.slot;
  spread.offset = x.offset;
  spread.dtype = x.dtype;
  const int shift = out.rank() - x.rank();
  for (int d = 0; d < out.rank(); ++d) {
    const bool absent = d < shift || (x.dims[d - shift].extent == 1 && x.dims[d - shift].per_row == 0);
    spread.dims[d].stride = absent ? 0 : x.dims[d - shift].stride;
  }
  e.copy(spread, out);
}

}  // namespace

void add_view_lowerings(std::map<std::string_view, HostLowering>& table) {
  table["reshape"] = lower_reshape;
  table["transpose"] = lower_transpose;
  table["slice"] = lower_slice;
  table["concat"] = lower_concat;
  table["broadcast"] = lower_broadcast;
}

}  // namespace spyre::compiler
