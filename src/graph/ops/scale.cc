// scale and offset: one fp32 constant against every element, rounded once.
#include "graph/ops/ops.h"

namespace spyre::graph {
namespace {

std::vector<Type> infer(const InferInput& in) {
  require(in.op, in.types[0].is_float_tensor(), "C1", "x is {}", in.types[0].to_string());
  return {in.types[0]};
}

template <typename F>
void map(EvalContext& context, F&& f) {
  const Type& type = context.output_types[0];
  const std::span<const float> x = context.inputs[0]->floats();
  Array y = Array::zeros(type);
  const std::span<float> out = y.mutable_floats();
  for (size_t i = 0; i < x.size(); ++i) out[i] = context.store(type.dtype, f(x[i]));
  context.outputs.push_back(std::move(y));
}

void evaluate_scale(EvalContext& context) {
  const auto factor = static_cast<float>(context.op.float_attr("factor"));
  map(context, [factor](float x) { return x * factor; });
}

void evaluate_offset(EvalContext& context) {
  const auto value = static_cast<float>(context.op.float_attr("value"));
  map(context, [value](float x) { return x + value; });
}

}  // namespace

const OpDef& scale_op() {
  static const OpDef def = {.name = "scale",
                            .family = OpFamily::kUnary,
                            .summary = "x * factor, the factor rounded to fp32",
                            .operands = "x",
                            .min_inputs = 1,
                            .max_inputs = 1,
                            .attributes = {{"factor", AttrKind::kFloat, std::nullopt}},
                            .constraints = {{"C1", "x is a float tensor"}},
                            .infer = infer,
                            .evaluate = evaluate_scale};
  return def;
}

const OpDef& offset_op() {
  static const OpDef def = {.name = "offset",
                            .family = OpFamily::kUnary,
                            .summary = "x + value, the value rounded to fp32",
                            .operands = "x",
                            .min_inputs = 1,
                            .max_inputs = 1,
                            .attributes = {{"value", AttrKind::kFloat, std::nullopt}},
                            .constraints = {{"C1", "x is a float tensor"}},
                            .infer = infer,
                            .evaluate = evaluate_offset};
  return def;
}

}  // namespace spyre::graph
