// kv_store and attention: calls with steps of their own (attention/host_attention.h).
#include "base/error.h"
#include "plugins/spyre/attention/host_attention.h"
#include "plugins/spyre/compiler/host_emitter.h"

namespace spyre::compiler {
namespace {

using device::HostView;

// [@T, heads, D] with heads and D contiguous enough to be walked by stride: (token stride, head stride).
attention::TokenRows token_rows(HostEmitter& e, const HostView& view) {
  return {.place = e.place(view), .token_stride = view.dims[0].stride, .head_stride = view.dims[1].stride};
}

void lower_kv_store(HostEmitter& e, const graph::Op& op) {
  const HostView state = e.view(op.inputs[0]);
  const HostView k = e.contiguous_rows(e.view(op.inputs[1])), v = e.contiguous_rows(e.view(op.inputs[2]));
  const HostView slots = e.view(op.inputs[3]);
  const graph::Type& kv = e.type(op.inputs[0]);
  auto step = std::make_unique<attention::KvStoreStep>();
  step->state = e.place(state);
  step->k = token_rows(e, k);
  step->v = token_rows(e, v);
  step->slots = e.place(slots);
  step->heads = kv.dims[0].extent;
  step->head_dim = kv.dims[1].extent;
  step->tokens = k.dims[0];
  e.add(std::move(step));
  e.alias(op.outputs[0], state);
}

void lower_attention(HostEmitter& e, const graph::Op& op) {
  const HostView q = e.contiguous_rows(e.view(op.inputs[0]));
  const HostView state = e.view(op.inputs[1]);
  const graph::Type& kv = e.type(op.inputs[1]);
  const HostView out = e.define(op.outputs[0]);
  auto step = std::make_unique<attention::AttentionStep>();
  step->kernels = &kernels::select_attention_kernels(e.options().features, q.dtype, e.order(q.dtype));
  step->q = token_rows(e, q);
  step->out = token_rows(e, out);
  step->state = e.place(state);
  step->heads = q.dims[1].extent;
  step->kv_heads = kv.dims[0].extent;
  step->head_dim = kv.dims[1].extent;
  step->scale = static_cast<float>(op.float_attr("scale"));
  step->soft_cap = static_cast<float>(op.float_attr("softcap"));
  step->window = op.int_attr("window");
  e.add(std::move(step));
}

}  // namespace

void add_call_lowerings(std::map<std::string_view, HostLowering>& table) {
  table["kv_store"] = lower_kv_store;
  table["attention"] = lower_attention;
}

}  // namespace spyre::compiler
