// Reductions over one axis, in the order tree16 (docs/numerics.md §3).
#include "base/vector_math.h"
#include "graph/ops/ops.h"

namespace spyre::graph {
namespace {

std::vector<Type> infer(const InferInput& in) {
  const Type& x = in.types[0];
  const int64_t axis = in.op.int_attr("axis"), keepdims = in.op.int_attr("keepdims");
  require(in.op, x.is_float_tensor(), "C1", "x is {}", x.to_string());
  require(in.op, axis >= 0 && axis < x.rank(), "C2", "x is {} and axis is {}", x.to_string(), axis);
  require(in.op, !x.dims[axis].rows, "C3", "x is {} and axis is {}", x.to_string(), axis);
  require(in.op, keepdims == 0 || keepdims == 1, "C4", "it is {}", keepdims);
  Type y = x;
  if (keepdims == 1) {
    y.dims[axis].extent = 1;
  } else {
    y.dims.erase(y.dims.begin() + axis);
  }
  return {y};
}

float maximum_of_row(DType, const float* x, int64_t n) {
  return reduce_max_row(x, n);
}

template <float (*kReduce)(DType, const float*, int64_t)>
void evaluate(EvalContext& context) {
  const Array& x = *context.inputs[0];
  const int64_t axis = context.op.int_attr("axis");
  const int64_t length = x.type().extent(static_cast<int>(axis));
  // The reduced axis moved to the end, so that each sum is over one contiguous row.
  Type moved = x.type();
  std::vector<int64_t> strides = row_major_strides(moved);
  const Dim dim = moved.dims[axis];
  const int64_t stride = strides[axis];
  moved.dims.erase(moved.dims.begin() + axis);
  strides.erase(strides.begin() + axis);
  moved.dims.push_back(dim);
  strides.push_back(stride);
  const Array rows = gather_strided(x, moved, 0, strides);

  const Type& type = context.output_types[0];
  Array y = Array::zeros(type);
  const float* in = rows.floats().data();
  for (float& out : y.mutable_floats()) {
    out = kReduce(rounding_dtype(context, type.dtype), in, length);
    in += length;
  }
  context.outputs.push_back(std::move(y));
}

template <float (*kReduce)(DType, const float*, int64_t)>
OpDef define(std::string_view name, std::string_view summary) {
  return {.name = name,
          .family = OpFamily::kReduce,
          .summary = summary,
          .operands = "x",
          .min_inputs = 1,
          .max_inputs = 1,
          .attributes = {{"axis", AttrKind::kInt, std::nullopt}, {"keepdims", AttrKind::kInt, Attribute(int64_t{0})}},
          .constraints = {{"C1", "x is a float tensor"},
                          {"C2", "axis is an axis of x"},
                          {"C3", "axis is not the rows dimension"},
                          {"C4", "keepdims is 0 or 1"}},
          .infer = infer,
          .evaluate = evaluate<kReduce>};
}

}  // namespace

std::span<const OpDef> reduce_ops() {
  static const std::vector<OpDef> table = {
      define<reduce_sum_row>("reduce_sum", "the sum over an axis in the order tree16, rounded once"),
      define<reduce_mean_row>("reduce_mean",
                              "the sum over an axis in the order tree16, divided by its extent, rounded once"),
      define<maximum_of_row>("reduce_max", "the maximum over an axis; a NaN wins"),
  };
  return table;
}

}  // namespace spyre::graph
