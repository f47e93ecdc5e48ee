// Types of values in the graph IR: dense tensors of static shape, KV-cache states and the step's attention metadata.
//
// Plain values, copied freely. A shape has at most kMaxRank dimensions. One dimension may be the *rows* dimension (the
// tokens of a step, written @64 in text): its extent is a bucket, and a run may have fewer live rows. Rows are
// independent of each other in every operator except attention, which is what lets a program skip the rows that are
// not live; the shape rules enforce it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/export.h"

namespace spyre::graph {

inline constexpr int kMaxRank = 6;
inline constexpr int64_t kMaxExtent = int64_t{1} << 40;  // of a dimension, and of the elements of a tensor

struct Dim {
  int64_t extent = 1;
  bool rows = false;
  bool operator==(const Dim&) const = default;
};

enum class TypeKind : uint8_t {
  kTensor,   // dtype, dims
  kKvCache,  // the K and V pages of one attention layer: dtype; dims = [kv heads, head size]
  kBatch,    // attention metadata of the step (see AttentionBatch): no dtype, no dims
};

struct SPYRE_API Type {
  TypeKind kind = TypeKind::kTensor;
  DType dtype = DType::kF32;
  std::vector<Dim> dims;

  static Type tensor(DType dtype, std::vector<Dim> dims) { return {TypeKind::kTensor, dtype, std::move(dims)}; }
  static Type tensor(DType dtype, const std::vector<int64_t>& extents);
  static Type kv_cache(DType dtype, int64_t heads, int64_t head_size);
  static Type batch() { return {TypeKind::kBatch, DType::kI32, {}}; }

  bool is_tensor() const { return kind == TypeKind::kTensor; }
  bool is_float_tensor() const { return is_tensor() && is_float(dtype); }
  bool is_state() const { return kind == TypeKind::kKvCache; }
  int rank() const { return static_cast<int>(dims.size()); }
  int64_t extent(int axis) const { return dims[axis < 0 ? axis + rank() : axis].extent; }
  int64_t elements() const;  // product of the extents; 1 for a scalar
  int rows_axis() const;     // index of the rows dimension, or -1
  std::vector<int64_t> extents() const;
  std::string to_string() const;  // "f16[@64,576]", "kv f16[3,64]", "batch"

  // Throws Error(kInvalidArgument) with the offending numbers unless: rank <= kMaxRank; extents >= 1, at most
  // kMaxExtent each and in product; at most one rows dimension; a tensor is f32, f16, bf16 or i32; a KV cache is
  // [heads, head size] of a float dtype without rows.
  void validate() const;

  // The tensor a shape attribute describes: -1 stands for the rows dimension, whose extent is |rows|.
  static Type from_shape(DType dtype, const std::vector<int64_t>& shape, int64_t rows);

  bool operator==(const Type&) const = default;
};

}  // namespace spyre::graph
