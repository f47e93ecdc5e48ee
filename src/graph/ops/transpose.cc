// transpose: a permutation of the axes.
#include "graph/ops/ops.h"

namespace spyre::graph {
namespace {

std::vector<Type> infer(const InferInput& in) {
  const Type& x = in.types[0];
  const std::vector<int64_t>& perm = in.op.ints_attr("perm");
  require(in.op, x.is_tensor(), "C1", "x is {}", x.to_string());
  require(in.op, static_cast<int>(perm.size()) == x.rank(), "C2", "x is {} and perm has {} entries", x.to_string(),
          perm.size());
  std::vector<bool> seen(perm.size(), false);
  Type y = x;
  for (size_t i = 0; i < perm.size(); ++i) {
    require(in.op, perm[i] >= 0 && perm[i] < x.rank() && !seen[perm[i]], "C2", "entry {} is {}", i, perm[i]);
    seen[perm[i]] = true;
    y.dims[i] = x.dims[perm[i]];
  }
  return {y};
}

void evaluate(EvalContext& context) {
  const Array& x = *context.inputs[0];
  const std::vector<int64_t> own = row_major_strides(x.type());
  std::vector<int64_t> strides;
  for (const int64_t axis : context.op.ints_attr("perm")) strides.push_back(own[axis]);
  context.outputs.push_back(gather_strided(x, context.output_types[0], 0, strides));
}

}  // namespace

const OpDef& transpose_op() {
  static const OpDef def = {.name = "transpose",
                            .family = OpFamily::kView,
                            .summary = "axis i of the result is axis perm[i] of x",
                            .operands = "x",
                            .min_inputs = 1,
                            .max_inputs = 1,
                            .attributes = {{"perm", AttrKind::kInts, std::nullopt}},
                            .constraints = {{"C1", "x is a tensor"}, {"C2", "perm is a permutation of the axes of x"}},
                            .infer = infer,
                            .evaluate = evaluate};
  return def;
}

}  // namespace spyre::graph
