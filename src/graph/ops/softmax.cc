// softmax over the last axis (docs/numerics.md §3).
#include "base/vector_math.h"
#include "graph/ops/ops.h"

namespace spyre::graph {
namespace {

std::vector<Type> infer(const InferInput& in) {
  const Type& x = in.types[0];
  require(in.op, x.is_float_tensor() && x.rank() >= 1, "C1", "x is {}", x.to_string());
  require(in.op, !x.dims.back().rows, "C2", "x is {}", x.to_string());
  return {x};
}

void evaluate(EvalContext& context) {
  const Type& type = context.output_types[0];
  const int64_t n = type.extent(-1);
  const float* x = context.inputs[0]->floats().data();
  Array y = Array::zeros(type);
  float* out = y.mutable_floats().data();
  for (int64_t first = 0; first < type.elements(); first += n) {
    softmax_row(rounding_dtype(context, type.dtype), x + first, out + first, n);
  }
  context.outputs.push_back(std::move(y));
}

}  // namespace

const OpDef& softmax_op() {
  static const OpDef def = {.name = "softmax",
                            .family = OpFamily::kNorm,
                            .summary = "exp(x - max) / tree16(exp(x - max)) over the last axis, rounded once",
                            .operands = "x",
                            .min_inputs = 1,
                            .max_inputs = 1,
                            .attributes = {},
                            .constraints = {{"C1", "x is a float tensor of rank 1 or more"},
                                            {"C2", "the last axis is not the rows dimension"}},
                            .infer = infer,
                            .evaluate = evaluate};
  return def;
}

}  // namespace spyre::graph
