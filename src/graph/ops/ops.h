// The definitions of all operators, one file each (a family whose members differ only in a scalar function shares one),
// and what those files have in common. Internal to the graph room: everybody else uses op_def.h.
//
// Definitions are function-local statics, so that they may be used while other files are still being initialised.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string>
#include <vector>

#include "graph/interpreter.h"
#include "graph/op_def.h"

namespace spyre::graph {

std::span<const OpDef> unary_ops();
std::span<const OpDef> binary_ops();
std::span<const OpDef> reduce_ops();
const OpDef& scale_op();
const OpDef& offset_op();
const OpDef& convert_op();
const OpDef& matmul_op();
const OpDef& linear_op();
const OpDef& reshape_op();
const OpDef& transpose_op();
const OpDef& slice_op();
const OpDef& concat_op();
const OpDef& broadcast_op();
const OpDef& softmax_op();
const OpDef& rms_norm_op();
const OpDef& layer_norm_op();
const OpDef& gather_rows_op();
const OpDef& rotary_op();
const OpDef& rotate_2x2_op();
const OpDef& kv_store_op();
const OpDef& attention_op();

// require(op, types[0].is_float_tensor(), "C1", "x is {}", types[0].to_string())
template <typename... Args>
void require(const Op& op, bool condition, std::string_view number, fmt::format_string<Args...> detail,
             Args&&... args) {
  if (!condition) violate(op, number, fmt::format(detail, std::forward<Args>(args)...));
}

// Some axis in [first, last) of |type| is the rows dimension.
bool rows_within(const Type& type, int first, int last);

// The type of |x| with the dimensions that the attribute "shape" of reshape or broadcast names, -1 being the rows
// dimension. Checks what the two have in common: C1 to C3.
Type reshaped_type(const Op& op, const Type& x);

// The numpy broadcast of two shapes, aligned at the last dimension, or false and the output axis where they disagree.
// Two extents agree when they are equal or one of them is 1; the rows dimension agrees with rows of the same extent and
// with a plain extent of 1. |rows_conflict| tells that it was a rows dimension that met something else.
struct Broadcast {
  bool ok = true, rows_conflict = false;
  int axis = 0;
  std::vector<Dim> dims;
};
Broadcast broadcast_dims(const std::vector<Dim>& a, const std::vector<Dim>& b);

// Strides, in elements, with which an operand of shape |from| is read at the positions of |to| (0 where it repeats).
std::vector<int64_t> broadcast_strides(const Type& from, const Type& to);
std::vector<int64_t> row_major_strides(const Type& type);

// Calls f(offset, count, stride) for each innermost run of |shape|, in row-major order: |count| elements of the operand
// that lies with |strides|, the first at |offset|.
template <typename F>
void for_each_run(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides, F&& f) {
  if (shape.empty()) return f(int64_t{0}, int64_t{1}, int64_t{1});
  const int last = static_cast<int>(shape.size()) - 1;
  std::vector<int64_t> index(shape.size(), 0);
  int64_t offset = 0;
  while (true) {
    f(offset, shape[last], strides[last]);
    int axis = last - 1;
    for (; axis >= 0; --axis) {
      offset += strides[axis];
      if (++index[axis] < shape[axis]) break;
      offset -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

// Copies a strided view of |source|, float or i32, into a new array of |type|.
Array gather_strided(const Array& source, const Type& type, int64_t first, const std::vector<int64_t>& strides);

// The dtype in which rows are rounded: the storage dtype in exact mode, f32 (no rounding) otherwise.
inline DType rounding_dtype(const EvalContext& context, DType storage) {
  return context.mode == EvalMode::kExact ? storage : DType::kF32;
}

}  // namespace spyre::graph
