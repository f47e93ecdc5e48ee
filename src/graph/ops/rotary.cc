// rotary: the rotary position embedding on halves of a head (docs/numerics.md §5).
#include "base/vector_math.h"
#include "graph/ops/ops.h"

namespace spyre::graph {
namespace {

std::vector<Type> infer(const InferInput& in) {
  const Type& x = in.types[0];
  const Type& table = in.types[1];
  require(in.op, x.is_float_tensor() && table.is_float_tensor() && x.dtype == table.dtype, "C1", "they are {} and {}",
          x.to_string(), table.to_string());
  require(in.op, x.rank() == 3 && !rows_within(x, 1, 3), "C2", "x is {}", x.to_string());
  require(in.op, x.extent(2) % 2 == 0, "C3", "x is {}", x.to_string());
  require(in.op, table.dims == std::vector<Dim>{x.dims[0], x.dims[2]}, "C4", "x is {} and cos_sin {}", x.to_string(),
          table.to_string());
  return {x};
}

void evaluate(EvalContext& context) {
  const Type& type = context.output_types[0];
  const DType dtype = rounding_dtype(context, type.dtype);
  const int64_t tokens = type.extent(0), heads = type.extent(1), d = type.extent(2);
  const float* x = context.inputs[0]->floats().data();
  Array y = Array::zeros(type);
  float* out = y.mutable_floats().data();
  for (int64_t t = 0; t < tokens; ++t) {
    const float* cos = context.inputs[1]->floats().data() + t * d;
    for (int64_t head = 0; head < heads; ++head, x += d, out += d) rotate_half_row(dtype, x, cos, cos + d / 2, out, d);
  }
  context.outputs.push_back(std::move(y));
}

}  // namespace

const OpDef& rotary_op() {
  static const OpDef def = {
      .name = "rotary",
      .family = OpFamily::kOther,
      .summary =
          "rotates (x[i], x[i + D/2]) of each head by the angle of its token; cos_sin holds D/2 cosines, then D/2 "
          "sines",
      .operands = "x, cos_sin",
      .min_inputs = 2,
      .max_inputs = 2,
      .attributes = {},
      .constraints = {{"C1", "both operands are tensors of the same float dtype"},
                      {"C2", "x is [T, H, D], only T may be the rows dimension"},
                      {"C3", "D is even"},
                      {"C4", "cos_sin is [T, D] with the T and D of x"}},
      .infer = infer,
      .evaluate = evaluate};
  return def;
}

}  // namespace spyre::graph
