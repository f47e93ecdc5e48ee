// concat: operands one after another along one axis.
#include <algorithm>

#include "graph/ops/ops.h"

namespace spyre::graph {
namespace {

std::vector<Type> infer(const InferInput& in) {
  const Type& first = in.types[0];
  const int64_t axis = in.op.int_attr("axis");
  for (const Type& type : in.types) {
    require(in.op, type.is_tensor() && first.is_tensor() && type.dtype == first.dtype, "C1", "they include {} and {}",
            first.to_string(), type.to_string());
  }
  require(in.op, axis >= 0 && axis < first.rank(), "C2", "the first is {} and axis is {}", first.to_string(), axis);
  Type y = first;
  y.dims[axis].extent = 0;
  for (const Type& type : in.types) {
    bool fits = type.rank() == first.rank();
    for (int i = 0; fits && i < first.rank(); ++i) fits = i == axis || type.dims[i] == first.dims[i];
    require(in.op, fits, "C3", "they include {} and {}", first.to_string(), type.to_string());
    require(in.op, !type.dims[axis].rows, "C4", "{} and axis is {}", type.to_string(), axis);
    y.dims[axis].extent += type.dims[axis].extent;  // at most 1024 * 2^40
  }
  return {y};
}

template <typename T>
void copy_parts(EvalContext& context, int64_t outer, int64_t inner, T* out, const T* (*data)(const Array&)) {
  const int64_t axis = context.op.int_attr("axis");
  for (int64_t i = 0; i < outer; ++i) {
    for (const Array* part : context.inputs) {
      const int64_t block = part->type().dims[axis].extent * inner;
      out = std::copy_n(data(*part) + i * block, block, out);
    }
  }
}

void evaluate(EvalContext& context) {
  const Type& type = context.output_types[0];
  const int64_t axis = context.op.int_attr("axis");
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < type.rank(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : type.dims[i].extent;
  Array y = Array::zeros(type);
  if (type.dtype == DType::kI32) {
    copy_parts<int32_t>(context, outer, inner, y.mutable_ints().data(), [](const Array& a) { return a.ints().data(); });
  } else {
    copy_parts<float>(context, outer, inner, y.mutable_floats().data(),
                      [](const Array& a) { return a.floats().data(); });
  }
  context.outputs.push_back(std::move(y));
}

}  // namespace

const OpDef& concat_op() {
  static const OpDef def = {
      .name = "concat",
      .family = OpFamily::kView,
      .summary = "the operands one after another along an axis",
      .operands = "x0, x1, ...",
      .min_inputs = 1,
      .max_inputs = 1024,
      .attributes = {{"axis", AttrKind::kInt, std::nullopt}},
      .constraints = {{"C1", "the operands are tensors of the same dtype"},
                      {"C2", "axis is an axis of the operands"},
                      {"C3", "the operands have the same rank and agree in every other dimension"},
                      {"C4", "axis is not the rows dimension"}},
      .infer = infer,
      .evaluate = evaluate};
  return def;
}

}  // namespace spyre::graph
