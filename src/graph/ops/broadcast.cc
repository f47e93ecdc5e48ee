// broadcast: repeats dimensions of extent 1 (numpy rules) up to a given shape.
#include "graph/ops/ops.h"

namespace spyre::graph {
namespace {

std::vector<Type> infer(const InferInput& in) {
  const Op& op = in.op;
  const Type& x = in.types[0];
  Type y = reshaped_type(op, x);
  const Broadcast result = broadcast_dims(x.dims, y.dims);
  require(op, result.ok && result.dims == y.dims, "C4", "x is {} and the shape {}", x.to_string(), y.to_string());
  return {std::move(y)};
}

void evaluate(EvalContext& context) {
  const Array& x = *context.inputs[0];
  const Type& type = context.output_types[0];
  context.outputs.push_back(gather_strided(x, type, 0, broadcast_strides(x.type(), type)));
}

}  // namespace

const OpDef& broadcast_op() {
  static const OpDef def = {
      .name = "broadcast",
      .family = OpFamily::kView,
      .summary = "x repeated along dimensions of extent 1; -1 in the shape stands for the rows dimension",
      .operands = "x",
      .min_inputs = 1,
      .max_inputs = 1,
      .attributes = {{"shape", AttrKind::kInts, std::nullopt}},
      .constraints = {{"C1", "x is a tensor"},
                      {"C2", "shape has at most 6 entries, each at least 1 or -1"},
                      {"C3", "shape has one -1 when x has a rows dimension, and none otherwise"},
                      {"C4",
                       "x broadcasts to shape: aligned at the last dimension, its extents are equal or 1, rows "
                       "stay rows"}},
      .infer = infer,
      .evaluate = evaluate};
  return def;
}

}  // namespace spyre::graph
