// Elementwise functions of two operands with numpy broadcasting: computed in fp32, rounded once (docs/numerics.md §4).
#include "base/vector_math.h"
#include "graph/ops/ops.h"

namespace spyre::graph {
namespace {

std::vector<Type> infer(const InferInput& in) {
  const Type& a = in.types[0];
  const Type& b = in.types[1];
  require(in.op, a.is_float_tensor() && b.is_float_tensor() && a.dtype == b.dtype, "C1", "they are {} and {}",
          a.to_string(), b.to_string());
  Broadcast result = broadcast_dims(a.dims, b.dims);
  require(in.op, result.ok || result.rows_conflict, "C2", "{} and {} differ at axis {} of the result", a.to_string(),
          b.to_string(), result.axis);
  require(in.op, result.ok, "C3", "they are {} and {}", a.to_string(), b.to_string());
  return {Type::tensor(a.dtype, std::move(result.dims))};
}

float add(float a, float b) {
  return a + b;
}
float sub(float a, float b) {
  return a - b;
}
float mul(float a, float b) {
  return a * b;
}
float divide(float a, float b) {
  return a / b;
}

template <float (*kFunction)(float, float)>
void evaluate(EvalContext& context) {
  const Type& type = context.output_types[0];
  const Array& b = *context.inputs[1];
  const std::vector<int64_t> strides_b = broadcast_strides(b.type(), type);
  Array y = gather_strided(*context.inputs[0], type, 0, broadcast_strides(context.inputs[0]->type(), type));
  float* out = y.mutable_floats().data();
  for_each_run(type.extents(), strides_b, [&](int64_t offset, int64_t count, int64_t stride) {
    const float* in = b.floats().data() + offset;
    for (int64_t i = 0; i < count; ++i) out[i] = context.store(type.dtype, kFunction(out[i], in[i * stride]));
    out += count;
  });
  context.outputs.push_back(std::move(y));
}

template <float (*kFunction)(float, float)>
OpDef define(std::string_view name, std::string_view summary) {
  return {.name = name,
          .family = OpFamily::kBinary,
          .summary = summary,
          .operands = "a, b",
          .min_inputs = 2,
          .max_inputs = 2,
          .attributes = {},
          .constraints = {{"C1", "both operands are tensors of the same float dtype"},
                          {"C2", "the shapes broadcast: aligned at the last dimension, extents are equal or one is 1"},
                          {"C3",
                           "a rows dimension meets rows of the same extent or a plain extent of 1, and the result "
                           "has at most one rows dimension"}},
          .infer = infer,
          .evaluate = evaluate<kFunction>};
}

}  // namespace

std::span<const OpDef> binary_ops() {
  static const std::vector<OpDef> table = {
      define<add>("add", "a + b"),
      define<sub>("sub", "a - b"),
      define<mul>("mul", "a * b"),
      define<divide>("div", "a / b, correctly rounded in fp32"),
      define<maximum_f32>("maximum", "the larger of a and b; a NaN wins; of equal numbers b"),
      define<minimum_f32>("minimum", "the smaller of a and b; a NaN wins; of equal numbers b"),
  };
  return table;
}

}  // namespace spyre::graph
