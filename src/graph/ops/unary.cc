// Elementwise functions of one operand: computed in fp32, rounded once (docs/numerics.md §4).
#include <cmath>

#include "base/vector_math.h"
#include "graph/ops/ops.h"

namespace spyre::graph {
namespace {

std::vector<Type> infer(const InferInput& in) {
  require(in.op, in.types[0].is_float_tensor(), "C1", "x is {}", in.types[0].to_string());
  return {in.types[0]};
}

float neg(float x) {
  return -x;
}
float absolute(float x) {
  return std::fabs(x);
}
float root(float x) {
  return std::sqrt(x);
}
float reciprocal(float x) {
  return 1.0f / x;
}

template <float (*kFunction)(float)>
void evaluate(EvalContext& context) {
  const Type& type = context.output_types[0];
  const std::span<const float> x = context.inputs[0]->floats();
  Array y = Array::zeros(type);
  const std::span<float> out = y.mutable_floats();
  for (size_t i = 0; i < x.size(); ++i) out[i] = context.store(type.dtype, kFunction(x[i]));
  context.outputs.push_back(std::move(y));
}

template <float (*kFunction)(float)>
OpDef define(std::string_view name, std::string_view summary) {
  return {.name = name,
          .family = OpFamily::kUnary,
          .summary = summary,
          .operands = "x",
          .min_inputs = 1,
          .max_inputs = 1,
          .attributes = {},
          .constraints = {{"C1", "x is a float tensor"}},
          .infer = infer,
          .evaluate = evaluate<kFunction>};
}

}  // namespace

std::span<const OpDef> unary_ops() {
  static const std::vector<OpDef> table = {
      define<neg>("neg", "-x"),
      define<absolute>("abs", "|x|"),
      define<root>("sqrt", "the square root, correctly rounded; NaN below zero"),
      define<rsqrt_f32>("rsqrt", "1 / sqrt(x), each correctly rounded"),
      define<reciprocal>("reciprocal", "1 / x, correctly rounded"),
      define<exp_f32>("exp", "e^x by exp_f32"),
      define<log_f32>("log", "the natural logarithm by log_f32; -infinity at 0, NaN below"),
      define<tanh_f32>("tanh", "the hyperbolic tangent by tanh_f32"),
      define<sigmoid_f32>("sigmoid", "1 / (1 + exp(-x))"),
      define<silu_f32>("silu", "x / (1 + exp(-x))"),
      define<relu_f32>("relu", "maximum(x, +0)"),
      define<gelu_f32>("gelu", "0.5 x (1 + erf(x / sqrt 2))"),
      define<gelu_tanh_f32>("gelu_tanh", "0.5 x (1 + tanh(0.7978845608 (x + 0.044715 x^3)))"),
  };
  return table;
}

}  // namespace spyre::graph
