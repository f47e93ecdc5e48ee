// rotate_2x2: the rotary embedding as one 2x2 matrix per token and pair of lanes (docs/numerics.md §5). With
// [[c, -s], [s, c]] it has the bits of rotary.
#include "graph/ops/ops.h"

namespace spyre::graph {
namespace {

std::vector<Type> infer(const InferInput& in) {
  const Type& x = in.types[0];
  const Type& rotation = in.types[1];
  require(in.op, x.is_float_tensor() && rotation.is_float_tensor() && x.dtype == rotation.dtype, "C1",
          "they are {} and {}", x.to_string(), rotation.to_string());
  require(in.op, x.rank() == 3 && !rows_within(x, 1, 3), "C2", "x is {}", x.to_string());
  require(in.op, x.extent(2) % 2 == 0, "C3", "x is {}", x.to_string());
  const std::vector<Dim> expected = {x.dims[0], {2, false}, {2, false}, {x.extent(2) / 2, false}};
  require(in.op, rotation.dims == expected, "C4", "x is {} and rotation {}", x.to_string(), rotation.to_string());
  return {x};
}

void evaluate(EvalContext& context) {
  const Type& type = context.output_types[0];
  const int64_t tokens = type.extent(0), heads = type.extent(1), half = type.extent(2) / 2;
  const float* x = context.inputs[0]->floats().data();
  Array y = Array::zeros(type);
  float* out = y.mutable_floats().data();
  for (int64_t t = 0; t < tokens; ++t) {
    const float* rotation = context.inputs[1]->floats().data() + t * 4 * half;
    for (int64_t head = 0; head < heads; ++head, x += 2 * half, out += 2 * half) {
      for (int64_t i = 0; i < 2; ++i) {
        const float* row = rotation + i * 2 * half;
        for (int64_t n = 0; n < half; ++n) {
          out[i * half + n] = context.store(type.dtype, row[n] * x[n] + row[half + n] * x[half + n]);
        }
      }
    }
  }
  context.outputs.push_back(std::move(y));
}

}  // namespace

const OpDef& rotate_2x2_op() {
  static const OpDef def = {
      .name = "rotate_2x2",
      .family = OpFamily::kOther,
      .summary =
          "out[t,h,i,:] = rotation[t,i,0,:] * x[t,h,0,:] + rotation[t,i,1,:] * x[t,h,1,:], x seen as [T,H,2,D/2]",
      .operands = "x, rotation",
      .min_inputs = 2,
      .max_inputs = 2,
      .attributes = {},
      .constraints = {{"C1", "both operands are tensors of the same float dtype"},
                      {"C2", "x is [T, H, D], only T may be the rows dimension"},
                      {"C3", "D is even"},
                      {"C4", "rotation is [T, 2, 2, D/2] with the T and D of x"}},
      .infer = infer,
      .evaluate = evaluate};
  return def;
}

}  // namespace spyre::graph
