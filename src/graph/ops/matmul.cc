// matmul and linear: dot products in the named order of the dtype (docs/numerics.md §2), rounded once.
#include "graph/ops/dot_rows.h"
#include "graph/ops/ops.h"

namespace spyre::graph {
namespace {

DType result_dtype(const Op& op, const Type& x, std::string_view number) {
  const std::string& dtype = op.string_attr("dtype");
  require(op, dtype.empty() || dtype == "f32", number, "it is '{}'", dtype.substr(0, 32));
  return dtype.empty() ? x.dtype : DType::kF32;
}

void require_same_dtype(const InferInput& in) {
  const Type &x = in.types[0], &w = in.types[1];
  require(in.op, x.is_float_tensor() && w.is_float_tensor() && x.dtype == w.dtype, "C1", "they are {} and {}",
          x.to_string(), w.to_string());
}

std::vector<Type> infer_matmul(const InferInput& in) {
  require_same_dtype(in);
  const Op& op = in.op;
  const Type &x = in.types[0], &w = in.types[1];
  require(op, x.rank() >= 1 && w.rank() >= 2, "C2", "x is {} and w {}", x.to_string(), w.to_string());
  require(op, x.extent(-1) == w.extent(-2), "C3", "K of x is {} and K of w is {}", x.extent(-1), w.extent(-2));
  require(op, w.rows_axis() < 0 && !x.dims.back().rows, "C4", "x is {} and w {}", x.to_string(), w.to_string());
  bool batches_agree = w.rank() == 2 || w.rank() == x.rank();
  for (int axis = 0; batches_agree && axis < w.rank() - 2; ++axis) batches_agree = x.dims[axis] == w.dims[axis];
  require(op, batches_agree, "C5", "x is {} and w {}", x.to_string(), w.to_string());
  Type y = x;
  y.dtype = result_dtype(op, x, "C6");
  y.dims.back() = w.dims.back();
  return {y};
}

std::vector<Type> infer_linear(const InferInput& in) {
  require_same_dtype(in);
  const Op& op = in.op;
  const Type &x = in.types[0], &w = in.types[1];
  require(op, x.rank() >= 1 && w.rank() == 2, "C2", "x is {} and w {}", x.to_string(), w.to_string());
  require(op, x.extent(-1) == w.extent(1), "C3", "K of x is {} and K of w is {}", x.extent(-1), w.extent(1));
  require(op, w.rows_axis() < 0 && !x.dims.back().rows, "C4", "x is {} and w {}", x.to_string(), w.to_string());
  Type y = x;
  y.dtype = result_dtype(op, x, "C5");
  y.dims.back() = w.dims[0];
  return {y};
}

// One matrix product per batch; an unbatched w is one batch with all the rows of x.
void evaluate(EvalContext& context, bool transposed) {
  const Array &x = *context.inputs[0], &w = *context.inputs[1];
  const Type& type = context.output_types[0];
  const int64_t k = x.type().extent(-1), n = type.extent(-1);
  int64_t batches = 1;
  for (int axis = 0; axis < w.type().rank() - 2; ++axis) batches *= w.type().extent(axis);
  const int64_t rows = type.elements() / n / batches;
  DotRows call;
  call.rows = rows, call.k = k, call.n = n;
  call.k_stride = transposed ? 1 : n;
  call.n_stride = transposed ? k : 1;
  call.order = context.order(x.type().dtype);
  call.bf16 = x.type().dtype == DType::kBF16;
  if (context.mode == EvalMode::kFp32) call.order = DotOrder::kSequential, call.bf16 = false;
  Array y = Array::zeros(type);
  float* out = y.mutable_floats().data();
  for (int64_t batch = 0; batch < batches; ++batch) {
    call.x = x.floats().data() + batch * rows * k;
    call.w = w.floats().data() + batch * k * n;
    call.out = out + batch * rows * n;
    dot_rows(call);
  }
  for (float& element : y.mutable_floats()) element = context.store(type.dtype, element);
  context.outputs.push_back(std::move(y));
}

void evaluate_matmul(EvalContext& context) {
  evaluate(context, false);
}
void evaluate_linear(EvalContext& context) {
  evaluate(context, true);
}

}  // namespace

const OpDef& matmul_op() {
  static const OpDef def = {
      .name = "matmul",
      .family = OpFamily::kMatmul,
      .summary =
          "x[..., K] @ w[K, N], or batched x[B..., M, K] @ w[B..., K, N]; dtype \"f32\" leaves the accumulator "
          "unrounded",
      .operands = "x, w",
      .min_inputs = 2,
      .max_inputs = 2,
      .attributes = {{"dtype", AttrKind::kString, Attribute(std::string())}},
      .constraints = {{"C1", "both operands are tensors of the same float dtype"},
                      {"C2", "x has rank 1 or more, w rank 2 or more"},
                      {"C3", "the last extent of x is the last but one of w"},
                      {"C4", "w has no rows dimension and K is not the rows dimension of x"},
                      {"C5", "a w of rank 3 or more has the rank of x and the same leading dimensions"},
                      {"C6", "dtype is \"\" or \"f32\""}},
      .infer = infer_matmul,
      .evaluate = evaluate_matmul};
  return def;
}

const OpDef& linear_op() {
  static const OpDef def = {.name = "linear",
                            .family = OpFamily::kMatmul,
                            .summary = "x[..., K] @ w[N, K] transposed; dtype \"f32\" leaves the accumulator unrounded",
                            .operands = "x, w",
                            .min_inputs = 2,
                            .max_inputs = 2,
                            .attributes = {{"dtype", AttrKind::kString, Attribute(std::string())}},
                            .constraints = {{"C1", "both operands are tensors of the same float dtype"},
                                            {"C2", "x has rank 1 or more, w rank 2"},
                                            {"C3", "the last extents of x and w are equal"},
                                            {"C4", "w has no rows dimension and K is not the rows dimension of x"},
                                            {"C5", "dtype is \"\" or \"f32\""}},
                            .infer = infer_linear,
                            .evaluate = evaluate_linear};
  return def;
}

}  // namespace spyre::graph
