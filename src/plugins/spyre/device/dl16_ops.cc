#include "plugins/spyre/device/dl16_ops.h"

#include <map>
#include <string_view>

#include "base/error.h"
#include "graph/op_def.h"

namespace spyre::device {
namespace {

using graph::Array;
using graph::Op;
using graph::OpFamily;
using graph::Type;

struct Call {
  const Dl16Math& math;
  const Op& op;
  std::span<const Array* const> inputs;
  const Type& type;  // of the result
  const Dl16Placement& placement;

  std::span<const float> floats(size_t i) const { return inputs[i]->floats(); }
  bool is_16bit() const { return is_16bit_float(type.dtype); }
};

// What the operator gives without any rounding: for what moves values, and for functions that are rounded once.
Array unrounded(const Call& call) {
  const std::vector<graph::KvPages*> states(call.inputs.size(), nullptr);
  const std::vector<Type> types{call.type};
  graph::EvalContext context{call.op, call.inputs, states, nullptr, types, {}, graph::EvalMode::kFp32, DotOrder::kPair};
  call.op.def->evaluate(context);
  return std::move(context.outputs.at(0));
}

// Integers, fp32 and what moves are as they are.
Array rounded_once(const Call& call) {
  Array y = unrounded(call);
  if (call.is_16bit()) {
    for (float& x : y.mutable_floats()) x = call.math.round(x);
  }
  return y;
}

template <typename F>
Array map(const Call& call, F&& f) {
  Array y = Array::zeros(call.type);
  const std::span<const float> x = call.floats(0);
  const std::span<float> out = y.mutable_floats();
  for (size_t i = 0; i < x.size(); ++i) out[i] = f(x[i]);
  return y;
}

Array exponential(const Call& call) {
  if (!call.is_16bit()) return map(call, [&](float x) { return call.math.exp_fp32(x); });
  return map(call, [&](float x) { return call.math.exp(x); });
}

Array gelu_tanh(const Call& call) {
  if (!call.is_16bit()) return unrounded(call);
  return map(call, [&](float x) { return call.math.gelu_tanh(x); });
}

// A constant of the program is a DL16 as well.
Array scale(const Call& call) {
  if (!call.is_16bit()) return unrounded(call);
  const float factor = call.math.constant(call.op.float_attr("factor"));
  return map(call, [&](float x) { return call.math.round(x * factor); });
}

Array offset(const Call& call) {
  if (!call.is_16bit()) return unrounded(call);
  const float value = call.math.constant(call.op.float_attr("value"));
  return map(call, [&](float x) { return call.math.round(x + value); });
}

// row(x, y) for each row of the last dimension.
template <typename Row>
Array rows(const Call& call, Row&& row) {
  Array y = Array::zeros(call.type);
  const auto n = static_cast<size_t>(call.type.extent(-1));
  const std::span<const float> x = call.floats(0);
  const std::span<float> out = y.mutable_floats();
  for (size_t first = 0; first < x.size(); first += n) row(x.subspan(first, n), out.subspan(first, n));
  return y;
}

Array softmax(const Call& call) {
  if (!call.is_16bit()) return unrounded(call);
  return rows(call, [&](auto x, auto y) { call.math.softmax(x, y, call.placement.card); });
}

Array rms_norm(const Call& call) {
  if (!call.is_16bit()) return unrounded(call);
  const auto eps = static_cast<float>(call.op.float_attr("eps"));
  return rows(call, [&](auto x, auto y) { call.math.rms_norm(x, call.floats(1), eps, y, call.placement.card); });
}

Array layer_norm(const Call& call) {
  if (!call.is_16bit()) return unrounded(call);
  const auto eps = static_cast<float>(call.op.float_attr("eps"));
  return rows(call, [&](auto x, auto y) {
    call.math.layer_norm(x, call.floats(1), call.floats(2), eps, y, call.placement.card);
  });
}

Array reduce(const Call& call, bool mean) {
  if (!call.is_16bit()) return unrounded(call);
  const Type& from = call.inputs[0]->type();
  const auto axis = static_cast<int>(call.op.int_attr("axis"));
  const int64_t n = from.extent(axis);
  int64_t inner = 1;
  for (int d = axis + 1; d < from.rank(); ++d) inner *= from.extent(d);
  Array y = Array::zeros(call.type);
  const std::span<const float> x = call.floats(0);
  std::vector<float> row(static_cast<size_t>(n));
  for (int64_t i = 0; i < y.elements(); ++i) {
    const int64_t first = i / inner * inner * n + i % inner;
    for (int64_t j = 0; j < n; ++j) row[j] = x[first + j * inner];
    float& out = y.mutable_floats()[i];
    out = mean ? call.math.exx2(row, call.placement.card).mean : call.math.sum(row, call.placement.card);
  }
  return y;
}

Array reduce_sum(const Call& call) {
  return reduce(call, false);
}
Array reduce_mean(const Call& call) {
  return reduce(call, true);
}

// mul, mul, add.
float rotated(const Dl16Math& math, float a, float x, float b, float y) {
  return math.round(math.round(a * x) + math.round(b * y));
}

// |matrix|(token, out, in, lane): the 2x2 matrices.
template <typename Matrix>
Array rotate(const Call& call, Matrix&& matrix) {
  if (!call.is_16bit()) return unrounded(call);
  Array out = Array::zeros(call.type);
  const int64_t tokens = call.type.extent(0), heads = call.type.extent(1), half = call.type.extent(2) / 2;
  const float* x = call.floats(0).data();
  float* y = out.mutable_floats().data();
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < heads; ++h, x += 2 * half, y += 2 * half) {
      for (int64_t i = 0; i < 2 * half; ++i) {
        const int64_t lane = i % half, row = i / half;
        y[i] = rotated(call.math, matrix(t, row, 0, lane), x[lane], matrix(t, row, 1, lane), x[half + lane]);
      }
    }
  }
  return out;
}

Array rotate_2x2(const Call& call) {
  const int64_t half = call.type.extent(2) / 2;
  return rotate(call, [&, table = call.floats(1)](int64_t t, int64_t row, int64_t column, int64_t lane) {
    return table[((t * 2 + row) * 2 + column) * half + lane];
  });
}

Array rotary(const Call& call) {
  const int64_t half = call.type.extent(2) / 2;
  return rotate(call, [&, table = call.floats(1)](int64_t t, int64_t row, int64_t column, int64_t lane) {
    const float cos = table[t * 2 * half + lane], sin = table[(t * 2 + 1) * half + lane];
    return row == column ? cos : row == 0 ? -sin : sin;
  });
}

// batchmatmul gives DL16; an fp32 result is a cast of it.
Array matmul(const Call& call, bool transposed) {
  const Type &x = call.inputs[0]->type(), &w = call.inputs[1]->type();
  Dl16Matmul product{.k = x.extent(-1), .n = call.type.extent(-1)};
  int64_t batches = 1;
  for (int axis = 0; axis < w.rank() - 2; ++axis) batches *= w.extent(axis);
  product.rows = call.type.elements() / product.n / batches;
  product.k_stride = transposed ? 1 : product.n;
  product.n_stride = transposed ? product.k : 1;
  product.k_card = call.placement.card;
  product.k_per_core = call.placement.per_core;
  Array y = Array::zeros(call.type);
  for (int64_t batch = 0; batch < batches; ++batch) {
    product.x = call.floats(0).data() + batch * product.rows * product.k;
    product.w = call.floats(1).data() + batch * product.k * product.n;
    product.out = y.mutable_floats().data() + batch * product.rows * product.n;
    call.math.matmul(product);
  }
  return y;
}

Array plain_matmul(const Call& call) {
  return matmul(call, false);
}
Array linear(const Call& call) {
  return matmul(call, true);
}

using Evaluate = Array (*)(const Call&);

const std::map<std::string_view, Evaluate>& table() {
  static const std::map<std::string_view, Evaluate> functions = {
      {"exp", exponential},         {"gelu_tanh", gelu_tanh},   {"scale", scale},           {"offset", offset},
      {"softmax", softmax},         {"rms_norm", rms_norm},     {"layer_norm", layer_norm}, {"reduce_sum", reduce_sum},
      {"reduce_mean", reduce_mean}, {"rotate_2x2", rotate_2x2}, {"rotary", rotary},         {"matmul", plain_matmul},
      {"linear", linear},
  };
  return functions;
}

}  // namespace

Array evaluate_dl16(const Dl16Math& math, const Op& op, std::span<const Array* const> inputs, const Type& type,
                    const Dl16Placement& placement) {
  SPYRE_CHECK(op.def->family != OpFamily::kCall, "{}", op.name());
  const Call call{math, op, inputs, type, placement};
  const auto found = table().find(op.name());
  return found == table().end() ? rounded_once(call) : found->second(call);
}

}  // namespace spyre::device
