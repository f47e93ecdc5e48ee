// convert: the same numbers in another storage dtype.
#include "graph/ops/ops.h"

namespace spyre::graph {
namespace {

std::vector<Type> infer(const InferInput& in) {
  const Type& x = in.types[0];
  const std::string& dtype = in.op.string_attr("dtype");
  require(in.op, x.is_float_tensor(), "C1", "x is {}", x.to_string());
  require(in.op, dtype == "f32" || dtype == "f16" || dtype == "bf16", "C2", "it is '{}'", dtype.substr(0, 32));
  return {Type::tensor(parse_dtype(dtype), x.dims)};
}

void evaluate(EvalContext& context) {
  const Type& type = context.output_types[0];
  const std::span<const float> x = context.inputs[0]->floats();
  Array y = Array::zeros(type);
  const std::span<float> out = y.mutable_floats();
  for (size_t i = 0; i < x.size(); ++i) out[i] = context.store(type.dtype, x[i]);
  context.outputs.push_back(std::move(y));
}

}  // namespace

const OpDef& convert_op() {
  static const OpDef def = {
      .name = "convert",
      .family = OpFamily::kUnary,
      .summary = "x rounded to another dtype (to nearest, ties to even)",
      .operands = "x",
      .min_inputs = 1,
      .max_inputs = 1,
      .attributes = {{"dtype", AttrKind::kString, std::nullopt}},
      .constraints = {{"C1", "x is a float tensor"}, {"C2", "dtype is \"f32\", \"f16\" or \"bf16\""}},
      .infer = infer,
      .evaluate = evaluate};
  return def;
}

}  // namespace spyre::graph
