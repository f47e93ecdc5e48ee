#include "graph/ops/ops.h"

#include <algorithm>

namespace spyre::graph {

bool rows_within(const Type& type, int first, int last) {
  for (int axis = std::max(first, 0); axis < last && axis < type.rank(); ++axis) {
    if (type.dims[axis].rows) return true;
  }
  return false;
}

Type reshaped_type(const Op& op, const Type& x) {
  const std::vector<int64_t>& shape = op.ints_attr("shape");
  require(op, x.is_tensor(), "C1", "x is {}", x.to_string());
  int rows = 0;
  for (const int64_t extent : shape) {
    require(op, extent == -1 || (extent >= 1 && extent <= kMaxExtent), "C2", "the shape has {}", extent);
    rows += extent == -1;
  }
  require(op, shape.size() <= kMaxRank, "C2", "the shape has {} entries", shape.size());
  const int axis = x.rows_axis();
  require(op, rows == (axis >= 0 ? 1 : 0), "C3", "x is {} and the shape has {} entries of -1", x.to_string(), rows);
  Type y = Type::from_shape(x.dtype, shape, axis >= 0 ? x.extent(axis) : 1);
  y.validate();
  return y;
}

Broadcast broadcast_dims(const std::vector<Dim>& a, const std::vector<Dim>& b) {
  Broadcast result;
  const int rank = static_cast<int>(std::max(a.size(), b.size()));
  const auto at = [rank](const std::vector<Dim>& dims, int axis) {
    const int shift = rank - static_cast<int>(dims.size());
    return axis < shift ? Dim{1, false} : dims[axis - shift];
  };
  for (int axis = 0; axis < rank; ++axis) {
    const Dim x = at(a, axis), y = at(b, axis);
    const bool x_repeats = x.extent == 1 && !x.rows, y_repeats = y.extent == 1 && !y.rows;
    if (x != y && !x_repeats && !y_repeats) {
      return {false, x.rows || y.rows, axis, {}};
    }
    result.dims.push_back(x_repeats ? y : x);
  }
  const auto rows = std::count_if(result.dims.begin(), result.dims.end(), [](const Dim& dim) { return dim.rows; });
  if (rows > 1) return {false, true, 0, {}};
  return result;
}

std::vector<int64_t> row_major_strides(const Type& type) {
  std::vector<int64_t> strides(type.rank());
  int64_t stride = 1;
  for (int axis = type.rank() - 1; axis >= 0; --axis) {
    strides[axis] = stride;
    stride *= type.dims[axis].extent;
  }
  return strides;
}

std::vector<int64_t> broadcast_strides(const Type& from, const Type& to) {
  const std::vector<int64_t> own = row_major_strides(from);
  std::vector<int64_t> strides(to.rank(), 0);
  const int shift = to.rank() - from.rank();
  for (int axis = 0; axis < from.rank(); ++axis) {
    if (from.dims[axis].extent != 1) strides[axis + shift] = own[axis];
  }
  return strides;
}

Array gather_strided(const Array& source, const Type& type, int64_t first, const std::vector<int64_t>& strides) {
  Array result = Array::zeros(type);
  const auto copy = [&](auto* out, const auto* in) {
    for_each_run(type.extents(), strides, [&](int64_t offset, int64_t count, int64_t stride) {
      for (int64_t i = 0; i < count; ++i) *out++ = in[first + offset + i * stride];
    });
  };
  if (type.dtype == DType::kI32) {
    copy(result.mutable_ints().data(), source.ints().data());
  } else {
    copy(result.mutable_floats().data(), source.floats().data());
  }
  return result;
}

}  // namespace spyre::graph
