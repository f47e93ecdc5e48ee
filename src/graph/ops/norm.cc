// rms_norm and layer_norm over the last axis (docs/numerics.md §3).
#include "base/vector_math.h"
#include "graph/ops/ops.h"

namespace spyre::graph {
namespace {

std::vector<Type> infer(const InferInput& in) {
  const Type& x = in.types[0];
  for (const Type& type : in.types) {
    require(in.op, type.is_float_tensor() && x.is_float_tensor() && type.dtype == x.dtype, "C1",
            "they include {} and {}", x.to_string(), type.to_string());
  }
  require(in.op, x.rank() >= 1 && !x.dims.back().rows, "C2", "x is {}", x.to_string());
  for (const Type& type : in.types.subspan(1)) {
    require(in.op, type.rank() == 1 && type.dims[0] == x.dims.back(), "C3", "x is {} and one of them {}", x.to_string(),
            type.to_string());
  }
  const double eps = in.op.float_attr("eps");
  require(in.op, eps >= 0, "C4", "it is {}", eps);
  return {x};
}

// |norm|(x, y, n) for each row.
template <typename F>
void for_each_row(EvalContext& context, F&& norm) {
  const Type& type = context.output_types[0];
  const int64_t n = type.extent(-1);
  const float* x = context.inputs[0]->floats().data();
  Array y = Array::zeros(type);
  float* out = y.mutable_floats().data();
  for (int64_t first = 0; first < type.elements(); first += n) norm(x + first, out + first, n);
  context.outputs.push_back(std::move(y));
}

void evaluate_rms(EvalContext& context) {
  const DType dtype = rounding_dtype(context, context.output_types[0].dtype);
  const float* weight = context.inputs[1]->floats().data();
  const auto eps = static_cast<float>(context.op.float_attr("eps"));
  for_each_row(context, [&](const float* x, float* y, int64_t n) { rms_norm_row(dtype, x, weight, eps, y, n); });
}

void evaluate_layer(EvalContext& context) {
  const DType dtype = rounding_dtype(context, context.output_types[0].dtype);
  const float* weight = context.inputs[1]->floats().data();
  const float* bias = context.inputs[2]->floats().data();
  const auto eps = static_cast<float>(context.op.float_attr("eps"));
  for_each_row(context,
               [&](const float* x, float* y, int64_t n) { layer_norm_row(dtype, x, weight, bias, eps, y, n); });
}

}  // namespace

const OpDef& rms_norm_op() {
  static const OpDef def = {.name = "rms_norm",
                            .family = OpFamily::kNorm,
                            .summary = "x / sqrt(mean(x^2) + eps) over the last axis, rounded, times weight, rounded",
                            .operands = "x, weight",
                            .min_inputs = 2,
                            .max_inputs = 2,
                            .attributes = {{"eps", AttrKind::kFloat, std::nullopt}},
                            .constraints = {{"C1", "the operands are tensors of the same float dtype"},
                                            {"C2", "x has rank 1 or more and its last axis is not the rows dimension"},
                                            {"C3", "weight is [K], K the last extent of x"},
                                            {"C4", "eps is at least 0"}},
                            .infer = infer,
                            .evaluate = evaluate_rms};
  return def;
}

const OpDef& layer_norm_op() {
  static const OpDef def = {
      .name = "layer_norm",
      .family = OpFamily::kNorm,
      .summary = "(x - mean) / sqrt(var + eps) over the last axis, rounded, times weight, rounded, plus bias, rounded",
      .operands = "x, weight, bias",
      .min_inputs = 3,
      .max_inputs = 3,
      .attributes = {{"eps", AttrKind::kFloat, std::nullopt}},
      .constraints = {{"C1", "the operands are tensors of the same float dtype"},
                      {"C2", "x has rank 1 or more and its last axis is not the rows dimension"},
                      {"C3", "weight and bias are [K], K the last extent of x"},
                      {"C4", "eps is at least 0"}},
      .infer = infer,
      .evaluate = evaluate_layer};
  return def;
}

}  // namespace spyre::graph
