// slice: a contiguous range of one axis.
#include "graph/ops/ops.h"

namespace spyre::graph {
namespace {

std::vector<Type> infer(const InferInput& in) {
  const Type& x = in.types[0];
  const int64_t axis = in.op.int_attr("axis"), start = in.op.int_attr("start"), size = in.op.int_attr("size");
  require(in.op, x.is_tensor(), "C1", "x is {}", x.to_string());
  require(in.op, axis >= 0 && axis < x.rank(), "C2", "x is {} and axis is {}", x.to_string(), axis);
  const Dim& dim = x.dims[axis];
  require(in.op, start >= 0 && size >= 1 && start < dim.extent && size <= dim.extent - start, "C3",
          "start is {}, size {} and the extent {}", start, size, dim.extent);
  require(in.op, !dim.rows, "C4", "x is {} and axis is {}", x.to_string(), axis);
  Type y = x;
  y.dims[axis].extent = size;
  return {y};
}

void evaluate(EvalContext& context) {
  const Array& x = *context.inputs[0];
  const std::vector<int64_t> strides = row_major_strides(x.type());
  const int64_t first = context.op.int_attr("start") * strides[context.op.int_attr("axis")];
  context.outputs.push_back(gather_strided(x, context.output_types[0], first, strides));
}

}  // namespace

const OpDef& slice_op() {
  static const OpDef def = {.name = "slice",
                            .family = OpFamily::kView,
                            .summary = "elements start .. start + size of one axis of x",
                            .operands = "x",
                            .min_inputs = 1,
                            .max_inputs = 1,
                            .attributes = {{"axis", AttrKind::kInt, std::nullopt},
                                           {"size", AttrKind::kInt, std::nullopt},
                                           {"start", AttrKind::kInt, Attribute(int64_t{0})}},
                            .constraints = {{"C1", "x is a tensor"},
                                            {"C2", "axis is an axis of x"},
                                            {"C3", "start >= 0, size >= 1 and start + size is within the extent"},
                                            {"C4", "axis is not the rows dimension"}},
                            .infer = infer,
                            .evaluate = evaluate};
  return def;
}

}  // namespace spyre::graph
