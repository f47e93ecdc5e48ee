// Unary and binary operators, scale, offset, convert.
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/vector_math.h"
#include "plugins/spyre/compiler/host_emitter.h"
#include "plugins/spyre/device/rules.h"

namespace spyre::compiler {
namespace {

using device::HostView;
using kernels::BinaryOp;
using kernels::UnaryOp;

struct UnaryEntry {
  std::string_view name;
  UnaryOp op;
  float (*fp32)(float, float);  // null: not in the card's fp32 list
};

// fp32 forms are the scalar definitions; the second argument is unused.
constexpr std::array<UnaryEntry, 13> kUnary = {{
    {"neg", UnaryOp::kNeg, [](float x, float) { return -x; }},
    {"abs", UnaryOp::kAbs, [](float x, float) { return std::abs(x); }},
    {"sqrt", UnaryOp::kSqrt, [](float x, float) { return std::sqrt(x); }},
    {"rsqrt", UnaryOp::kRsqrt, [](float x, float) { return rsqrt_f32(x); }},
    {"reciprocal", UnaryOp::kReciprocal, [](float x, float) { return 1.0f / x; }},
    {"exp", UnaryOp::kExp, [](float x, float) { return exp_f32(x); }},
    {"log", UnaryOp::kLog, nullptr},
    {"tanh", UnaryOp::kTanh, nullptr},
    {"sigmoid", UnaryOp::kSigmoid, [](float x, float) { return sigmoid_f32(x); }},
    {"silu", UnaryOp::kSilu, [](float x, float) { return silu_f32(x); }},
    {"relu", UnaryOp::kRelu, [](float x, float) { return relu_f32(x); }},
    {"gelu", UnaryOp::kGelu, nullptr},
    {"gelu_tanh", UnaryOp::kGeluTanh, nullptr},
}};

struct BinaryEntry {
  std::string_view name;
  BinaryOp op;
  float (*fp32)(float, float);
};

constexpr std::array<BinaryEntry, 6> kBinary = {{
    {"add", BinaryOp::kAdd, [](float a, float b) { return a + b; }},
    {"sub", BinaryOp::kSub, [](float a, float b) { return a - b; }},
    {"mul", BinaryOp::kMul, [](float a, float b) { return a * b; }},
    {"div", BinaryOp::kDiv, [](float a, float b) { return a / b; }},
    {"maximum", BinaryOp::kMaximum, [](float a, float b) { return maximum_f32(a, b); }},
    {"minimum", BinaryOp::kMinimum, [](float a, float b) { return minimum_f32(a, b); }},
}};

template <typename Table>
const auto& entry(const Table& table, std::string_view name) {
  for (const auto& e : table) {
    if (e.name == name) return e;
  }
  SPYRE_CHECK(false, "{}", name);
  return table[0];
}

int64_t row_length(const HostView& view) {
  return view.rank() == 0 ? 1 : view.dims.back().extent;
}

// A result whose last dimension is the rows dimension has rows of one element.
int inner_dims(const HostView& out) {
  return out.rank() > 0 && out.dims.back().per_row > 0 ? 0 : 1;
}

void refuse_fp32(std::string_view name) {
  device::refuse(device::Rule::kFp32Ops, fmt::format("{} has an fp32 operand", name));
}

// Elements from one to the next in a row of |v|; 0 where it is spread over the row.
int64_t step_of(const HostView& v, int inner) {
  return inner == 0 || v.rank() == 0 || v.dims.back().extent == 1 ? int64_t{0} : v.dims.back().stride;
}

void emit_fp32(HostEmitter& e, std::string_view name, float (*function)(float, float), const HostView& out,
               const HostView& a, const HostView* b) {
  auto step = std::make_unique<device::Fp32Step>();
  const int inner = inner_dims(out);
  step->function = function;
  step->name = name.data();
  step->n = inner == 0 ? 1 : row_length(out);
  step->loop = b ? e.loop({&out, &a, b}, inner) : e.loop({&out, &a}, inner);
  step->out = e.place(out);
  step->a = e.place(a);
  step->a_step = step_of(a, inner);
  if (b != nullptr) {
    step->b = e.place(*b);
    step->b_step = step_of(*b, inner);
  }
  e.add(std::move(step));
}

void lower_unary(HostEmitter& e, const graph::Op& op) {
  const UnaryEntry& u = entry(kUnary, op.name());
  const graph::ValueId result = op.outputs[0];
  if (e.type(result).dtype == DType::kF32) {
    if (u.fp32 == nullptr) refuse_fp32(op.name());
    const HostView out = e.define(result);
    return emit_fp32(e, u.name, u.fp32, out, e.view(op.inputs[0]), nullptr);
  }
  const HostView x = e.contiguous_rows(e.view(op.inputs[0]));
  const HostView out = e.define(result);
  auto step = std::make_unique<device::UnaryStep>();
  step->kernels = &e.rows(out.dtype);
  step->op = u.op;
  step->loop = e.loop({&out, &x}, inner_dims(out));
  step->n = inner_dims(out) == 0 ? 1 : row_length(out);
  step->x = e.place(x);
  step->out = e.place(out);
  e.add(std::move(step));
}

void emit_activate_mul(HostEmitter& e, const graph::Op& mul, int activated) {
  const graph::Op& activation = e.graph().ops[e.graph().value(mul.inputs[activated]).producer];
  const HostView gate = e.contiguous_rows(e.view(activation.inputs[0]));
  const HostView up = e.contiguous_rows(e.view(mul.inputs[1 - activated]));
  const HostView out = e.define(mul.outputs[0]);
  auto step = std::make_unique<device::ActivateMulStep>();
  step->kernels = &e.rows(out.dtype);
  step->op = entry(kUnary, activation.name()).op;
  step->loop = e.loop({&out, &gate, &up}, inner_dims(out));
  step->n = inner_dims(out) == 0 ? 1 : row_length(out);
  step->gate = e.place(gate);
  step->up = e.place(up);
  step->out = e.place(out);
  e.add(std::move(step));
}

void lower_binary(HostEmitter& e, const graph::Op& op) {
  for (int i = 0; i < 2; ++i) {
    if (e.folded_producer(op.inputs[i]) != nullptr) return emit_activate_mul(e, op, i);
  }
  const BinaryEntry& b = entry(kBinary, op.name());
  const graph::ValueId result = op.outputs[0];
  if (e.type(result).dtype == DType::kF32) {
    const HostView left = e.view(op.inputs[0]), right = e.view(op.inputs[1]);
    const HostView out = e.define(result);
    return emit_fp32(e, b.name, b.fp32, out, left, &right);
  }
  const HostView left = e.contiguous_rows(e.view(op.inputs[0]));
  const HostView right = e.contiguous_rows(e.view(op.inputs[1]));
  const HostView out = e.define(result);
  const int inner = inner_dims(out);
  auto step = std::make_unique<device::BinaryStep>();
  step->kernels = &e.rows(out.dtype);
  step->op = b.op;
  step->loop = e.loop({&out, &left, &right}, inner);
  step->n = inner == 0 ? 1 : row_length(out);
  step->a_single = step->n > 1 && row_length(left) == 1;
  step->b_single = step->n > 1 && row_length(right) == 1;
  step->a = e.place(left);
  step->b = e.place(right);
  step->out = e.place(out);
  e.add(std::move(step));
}

void emit_fp32_scalar(HostEmitter& e, const graph::Op& op, BinaryOp binary, float value) {
  const HostView x = e.view(op.inputs[0]);
  const HostView out = e.define(op.outputs[0]);
  const int inner = inner_dims(out);
  auto step = std::make_unique<device::Fp32ScalarStep>();
  step->adds = binary == BinaryOp::kAdd;
  step->value = value;
  step->loop = e.loop({&out, &x}, inner);
  step->n = inner == 0 ? 1 : row_length(out);
  step->x = e.place(x);
  step->x_step = step_of(x, inner);
  step->out = e.place(out);
  e.add(std::move(step));
}

void emit_scalar(HostEmitter& e, const graph::Op& op, BinaryOp binary, float value) {
  if (e.type(op.outputs[0]).dtype == DType::kF32) return emit_fp32_scalar(e, op, binary, value);
  const HostView x = e.contiguous_rows(e.view(op.inputs[0]));
  const HostView out = e.define(op.outputs[0]);
  auto step = std::make_unique<device::ScalarStep>();
  step->kernels = &e.rows(out.dtype);
  step->op = binary;
  step->value = value;
  step->loop = e.loop({&out, &x}, inner_dims(out));
  step->n = inner_dims(out) == 0 ? 1 : row_length(out);
  step->x = e.place(x);
  step->out = e.place(out);
  e.add(std::move(step));
}

void lower_scale(HostEmitter& e, const graph::Op& op) {
  emit_scalar(e, op, BinaryOp::kMul, static_cast<float>(op.float_attr("factor")));
}
void lower_offset(HostEmitter& e, const graph::Op& op) {
  emit_scalar(e, op, BinaryOp::kAdd, static_cast<float>(op.float_attr("value")));
}

void lower_convert(HostEmitter& e, const graph::Op& op) {
  if (e.folded_producer(op.inputs[0]) != nullptr) return emit_wide_norm(e, op);
  const HostView x = e.view(op.inputs[0]);
  if (x.dtype == e.type(op.outputs[0]).dtype) return e.alias(op.outputs[0], x);
  e.copy(x, e.define(op.outputs[0]));
}

}  // namespace

void add_elementwise_lowerings(std::map<std::string_view, HostLowering>& table) {
  for (const UnaryEntry& u : kUnary) table[u.name] = lower_unary;
  for (const BinaryEntry& b : kBinary) table[b.name] = lower_binary;
  table["scale"] = lower_scale;
  table["offset"] = lower_offset;
  table["convert"] = lower_convert;
}

}  // namespace spyre::compiler
