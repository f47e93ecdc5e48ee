// gather_rows: rows of a table by index (an embedding).
#include <algorithm>

#include "base/error.h"
#include "graph/ops/ops.h"

namespace spyre::graph {
namespace {

std::vector<Type> infer(const InferInput& in) {
  const Type& table = in.types[0];
  const Type& ids = in.types[1];
  require(in.op, table.is_tensor() && table.rank() >= 1 && table.rows_axis() < 0, "C1", "it is {}", table.to_string());
  require(in.op, ids.is_tensor() && ids.dtype == DType::kI32 && ids.rank() == 1, "C2", "they are {}", ids.to_string());
  Type y = table;
  y.dims[0] = ids.dims[0];
  return {y};
}

template <typename T>
void copy_rows(std::span<const int32_t> ids, int64_t rows, int64_t row_size, const T* table, T* out) {
  for (size_t t = 0; t < ids.size(); ++t) {
    const int32_t id = ids[t];
    if (id < 0 || id >= rows) {
      throw_error(ErrorCode::kInvalidArgument, "gather_rows: id {} at position {} is outside the table of {} rows", id,
                  t, rows);
    }
    out = std::copy_n(table + id * row_size, row_size, out);
  }
}

void evaluate(EvalContext& context) {
  const Array& table = *context.inputs[0];
  const std::span<const int32_t> ids = context.inputs[1]->ints();
  const int64_t rows = table.type().extent(0);
  const int64_t row_size = table.elements() / rows;
  Array y = Array::zeros(context.output_types[0]);
  if (table.type().dtype == DType::kI32) {
    copy_rows(ids, rows, row_size, table.ints().data(), y.mutable_ints().data());
  } else {
    copy_rows(ids, rows, row_size, table.floats().data(), y.mutable_floats().data());
  }
  context.outputs.push_back(std::move(y));
}

}  // namespace

const OpDef& gather_rows_op() {
  static const OpDef def = {
      .name = "gather_rows",
      .family = OpFamily::kGather,
      .summary = "row ids[t] of the table at position t; an id outside the table is an error when it is met",
      .operands = "table, ids",
      .min_inputs = 2,
      .max_inputs = 2,
      .attributes = {},
      .constraints = {{"C1", "table is a tensor of rank 1 or more without a rows dimension"},
                      {"C2", "ids are i32 of rank 1"}},
      .infer = infer,
      .evaluate = evaluate};
  return def;
}

}  // namespace spyre::graph
