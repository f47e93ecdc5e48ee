#include "graph/type.h"

#include "base/error.h"

namespace spyre::graph {
namespace {

bool is_element_type(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kI32;
}

}  // namespace

Type Type::tensor(DType dtype, const std::vector<int64_t>& extents) {
  Type type{TypeKind::kTensor, dtype, {}};
  for (const int64_t extent : extents) type.dims.push_back({extent, false});
  return type;
}

Type Type::kv_cache(DType dtype, int64_t heads, int64_t head_size) {
  return {TypeKind::kKvCache, dtype, {{heads, false}, {head_size, false}}};
}

Type Type::from_shape(DType dtype, const std::vector<int64_t>& shape, int64_t rows) {
  Type type{TypeKind::kTensor, dtype, {}};
  for (const int64_t extent : shape) type.dims.push_back(extent == -1 ? Dim{rows, true} : Dim{extent, false});
  return type;
}

int64_t Type::elements() const {
  int64_t product = 1;
  for (const Dim& dim : dims) product *= dim.extent;
  return product;
}

int Type::rows_axis() const {
  for (int axis = 0; axis < rank(); ++axis) {
    if (dims[axis].rows) return axis;
  }
  return -1;
}

std::vector<int64_t> Type::extents() const {
  std::vector<int64_t> result;
  result.reserve(dims.size());
  for (const Dim& dim : dims) result.push_back(dim.extent);
  return result;
}

std::string Type::to_string() const {
  if (kind == TypeKind::kBatch) return "batch";
  std::string text = kind == TypeKind::kKvCache ? "kv " : "";
  text += spyre::to_string(dtype);
  text += '[';
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) text += ',';
    if (dims[i].rows) text += '@';
    text += std::to_string(dims[i].extent);
  }
  return text + ']';
}

void Type::validate() const {
  constexpr auto kCode = ErrorCode::kInvalidArgument;
  if (kind == TypeKind::kBatch) {
    if (!dims.empty()) throw_error(kCode, "type batch has no dimensions, got {}", dims.size());
    return;
  }
  if (rank() > kMaxRank) throw_error(kCode, "type {}: rank {} is more than {}", to_string(), rank(), kMaxRank);
  int64_t product = 1;
  int rows = 0;
  for (const Dim& dim : dims) {
    if (dim.extent < 1 || dim.extent > kMaxExtent || dim.extent > kMaxExtent / product) {
      throw_error(kCode, "type {}: each extent and their product must be in 1 .. {}", to_string(), kMaxExtent);
    }
    product *= dim.extent;
    rows += dim.rows;
  }
  if (rows > 1) throw_error(kCode, "type {}: {} dimensions are rows, at most 1 may be", to_string(), rows);
  if (!is_element_type(dtype)) throw_error(kCode, "type {}: elements must be f32, f16, bf16 or i32", to_string());
  if (kind == TypeKind::kKvCache && (rank() != 2 || rows > 0 || dtype == DType::kI32)) {
    throw_error(kCode, "type {}: a kv cache is [kv heads, head size] of a float dtype", to_string());
  }
}

}  // namespace spyre::graph
