// reshape: the same elements in the same row-major order under another shape.
#include "graph/ops/ops.h"

namespace spyre::graph {
namespace {

int64_t product(const Type& type, int first, int last) {
  int64_t result = 1;
  for (int axis = first; axis < last; ++axis) result *= type.dims[axis].extent;
  return result;
}

std::vector<Type> infer(const InferInput& in) {
  const Op& op = in.op;
  const Type& x = in.types[0];
  const Type y = reshaped_type(op, x);
  require(op, y.elements() == x.elements(), "C4", "{} has {} and {} has {}", x.to_string(), x.elements(), y.to_string(),
          y.elements());
  if (const int axis = x.rows_axis(); axis >= 0) {
    require(op, product(x, 0, axis) == product(y, 0, y.rows_axis()), "C5", "x is {} and the result {}", x.to_string(),
            y.to_string());
  }
  return {y};
}

void evaluate(EvalContext& context) {
  context.outputs.push_back(context.inputs[0]->reshaped(context.output_types[0]));
}

}  // namespace

const OpDef& reshape_op() {
  static const OpDef def = {
      .name = "reshape",
      .family = OpFamily::kView,
      .summary = "the elements of x in the same row-major order; -1 in the shape stands for the rows dimension",
      .operands = "x",
      .min_inputs = 1,
      .max_inputs = 1,
      .attributes = {{"shape", AttrKind::kInts, std::nullopt}},
      .constraints = {{"C1", "x is a tensor"},
                      {"C2", "shape has at most 6 entries, each at least 1 or -1"},
                      {"C3", "shape has one -1 when x has a rows dimension, and none otherwise"},
                      {"C4", "both shapes have the same number of elements"},
                      {"C5", "rows neither merge nor split: as many elements lie before the rows dimension as did"}},
      .infer = infer,
      .evaluate = evaluate};
  return def;
}

}  // namespace spyre::graph
