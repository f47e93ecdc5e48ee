// Norms, softmax and reductions: one kernel call per row of the last dimension.
#include "base/error.h"
#include "base/vector_math.h"
#include "plugins/spyre/compiler/host_emitter.h"
#include "plugins/spyre/device/rules.h"

namespace spyre::compiler {
namespace {

using device::HostView;

void require_half(HostEmitter& e, const graph::Op& op) {
  const DType dtype = e.type(op.inputs[0]).dtype;
  if (!is_16bit_float(dtype)) {
    device::refuse(device::Rule::kFp32Ops, fmt::format("{} has an operand of {}", op.name(), to_string(dtype)));
  }
}

// One step per norm: |out| = norm(|x|) * |weight|. A 16-bit result has kernels.
template <typename Step>
std::unique_ptr<Step> norm_step(HostEmitter& e, const HostView& weight, float eps, const HostView& out) {
  auto step = std::make_unique<Step>();
  if (is_16bit_float(out.dtype)) step->kernels = &e.rows(out.dtype);
  step->eps = eps;
  step->n = out.dims.back().extent;
  step->weight = e.place(weight);
  step->out = e.place(out);
  return step;
}

template <typename Step>
void emit_norm(HostEmitter& e, const HostView& x, const HostView& weight, float eps, const HostView& out) {
  auto step = norm_step<Step>(e, weight, eps, out);
  step->loop = e.loop({&out, &x});
  step->x = e.place(x);
  e.add(std::move(step));
}

// |sum| = |x| + |residual|, and its norm.
template <typename Step>
void emit_add_norm(HostEmitter& e, const HostView& x, const HostView& residual, const HostView& sum,
                   const HostView& weight, float eps, const HostView& out) {
  auto step = norm_step<Step>(e, weight, eps, out);
  step->loop = e.loop({&out, &x, &residual, &sum});
  step->x = e.place(x);
  step->residual = e.place(residual);
  step->sum = e.place(sum);
  e.add(std::move(step));
}

// No 16-bit result to fold into.
void emit_fp32_norm(HostEmitter& e, const graph::Op& op) {
  const HostView x = e.contiguous_rows(e.view(op.inputs[0])), weight = e.contiguous(e.view(op.inputs[1]));
  const HostView out = e.define(op.outputs[0]);
  emit_norm<device::Fp32RmsNormStep>(e, x, weight, static_cast<float>(op.float_attr("eps")), out);
}

void lower_rms_norm(HostEmitter& e, const graph::Op& op) {
  if (e.type(op.inputs[0]).dtype == DType::kF32) return emit_fp32_norm(e, op);
  const HostView weight = e.contiguous(e.view(op.inputs[1]));
  const auto eps = static_cast<float>(op.float_attr("eps"));
  if (const graph::Op* add = e.folded_producer(op.inputs[0])) {
    const HostView x = e.contiguous_rows(e.view(add->inputs[0]));
    const HostView residual = e.contiguous_rows(e.view(add->inputs[1]));
    const HostView sum = e.define(add->outputs[0]);
    const HostView out = e.define(op.outputs[0]);
    return emit_add_norm<device::AddRmsNormStep>(e, x, residual, sum, weight, eps, out);
  }
  const HostView x = e.contiguous_rows(e.view(op.inputs[0]));
  const HostView out = e.define(op.outputs[0]);
  emit_norm<device::RmsNormStep>(e, x, weight, eps, out);
}

void lower_layer_norm(HostEmitter& e, const graph::Op& op) {
  require_half(e, op);
  const HostView x = e.contiguous_rows(e.view(op.inputs[0]));
  const HostView weight = e.contiguous(e.view(op.inputs[1])), bias = e.contiguous(e.view(op.inputs[2]));
  const HostView out = e.define(op.outputs[0]);
  auto step = std::make_unique<device::LayerNormStep>();
  step->kernels = &e.rows(out.dtype);
  step->eps = static_cast<float>(op.float_attr("eps"));
  step->n = out.dims.back().extent;
  step->loop = e.loop({&out, &x});
  step->x = e.place(x);
  step->weight = e.place(weight);
  step->bias = e.place(bias);
  step->out = e.place(out);
  e.add(std::move(step));
}

void lower_softmax(HostEmitter& e, const graph::Op& op) {
  require_half(e, op);
  const HostView x = e.contiguous_rows(e.view(op.inputs[0]));
  const HostView out = e.define(op.outputs[0]);
  auto step = std::make_unique<device::SoftmaxStep>();
  step->kernels = &e.rows(out.dtype);
  step->n = out.dims.back().extent;
  step->loop = e.loop({&out, &x});
  step->x = e.place(x);
  step->out = e.place(out);
  e.add(std::move(step));
}

// The operand without its reduced axis, so that its dimensions line up with the result's.
void emit_reduce(HostEmitter& e, const graph::Op& op, kernels::ReduceOp reduce) {
  require_half(e, op);
  const auto axis = static_cast<size_t>(op.int_attr("axis"));
  const HostView x = e.view(op.inputs[0]);
  const device::HostDim reduced = x.dims[axis];
  HostView rows = x;
  if (op.int_attr("keepdims") == 1) {
    rows.dims[axis] = {.extent = 1, .stride = 0};
  } else {
    rows.dims.erase(rows.dims.begin() + static_cast<int64_t>(axis));
  }
  const HostView out = e.define(op.outputs[0]);
  auto step = std::make_unique<device::ReduceStep>();
  step->kernels = &e.rows(out.dtype);
  step->op = reduce;
  step->n = reduced.extent;
  step->stride = reduced.extent == 1 ? 1 : reduced.stride;
  step->loop = e.loop({&out, &rows}, 0);
  step->x = e.place(x);
  step->out = e.place(out);
  e.add(std::move(step));
}

void lower_reduce_sum(HostEmitter& e, const graph::Op& op) {
  emit_reduce(e, op, kernels::ReduceOp::kSum);
}
void lower_reduce_mean(HostEmitter& e, const graph::Op& op) {
  emit_reduce(e, op, kernels::ReduceOp::kMean);
}
void lower_reduce_max(HostEmitter& e, const graph::Op& op) {
  emit_reduce(e, op, kernels::ReduceOp::kMax);
}

void emit_wide_add_norm(HostEmitter& e, const graph::Op& add, const graph::Op& convert, const HostView& weight,
                        float eps) {
  const DType half = e.type(convert.outputs[0]).dtype;
  const int term = e.foldable_convert(add.inputs[0], half) != nullptr ? 0 : 1;
  const graph::Op& widen = *e.foldable_convert(add.inputs[term], half);
  const HostView x = e.contiguous_rows(e.view(widen.inputs[0]));
  const HostView residual = e.contiguous_rows(e.view(add.inputs[1 - term]));
  const HostView sum = e.define(add.outputs[0]);
  const HostView out = e.define(convert.outputs[0]);
  emit_add_norm<device::WideAddRmsNormStep>(e, x, residual, sum, weight, eps, out);
}

}  // namespace

void emit_wide_norm(HostEmitter& e, const graph::Op& convert) {
  const graph::Graph& graph = e.graph();
  const graph::Op& norm = graph.ops[graph.value(convert.inputs[0]).producer];
  const graph::Op& weight_convert = graph.ops[graph.value(norm.inputs[1]).producer];
  const auto eps = static_cast<float>(norm.float_attr("eps"));
  const HostView weight = e.contiguous(e.view(weight_convert.inputs[0]));
  if (const graph::Op* add = e.folded_producer(norm.inputs[0])) {
    return emit_wide_add_norm(e, *add, convert, weight, eps);
  }
  const HostView x = e.contiguous_rows(e.view(norm.inputs[0]));
  const HostView out = e.define(convert.outputs[0]);
  emit_norm<device::WideRmsNormStep>(e, x, weight, eps, out);
}

void add_norm_lowerings(std::map<std::string_view, HostLowering>& table) {
  table["rms_norm"] = lower_rms_norm;
  table["layer_norm"] = lower_layer_norm;
  table["softmax"] = lower_softmax;
  table["reduce_sum"] = lower_reduce_sum;
  table["reduce_mean"] = lower_reduce_mean;
  table["reduce_max"] = lower_reduce_max;
}

}  // namespace spyre::compiler
