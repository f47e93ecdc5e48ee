#include "base/dtype.h"

#include "base/error.h"

namespace spyre {

size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64: return 8;
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kF16:
    case DType::kBF16:
    case DType::kI16: return 2;
    case DType::kI8:
    case DType::kU8:
    case DType::kBool: return 1;
  }
  return 0;
}

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::kF64: return "f64";
    case DType::kI64: return "i64";
    case DType::kF32: return "f32";
    case DType::kI32: return "i32";
    case DType::kF16: return "f16";
    case DType::kBF16: return "bf16";
    case DType::kI16: return "i16";
    case DType::kI8: return "i8";
    case DType::kU8: return "u8";
    case DType::kBool: return "bool";
  }
  return "?";
}

DType parse_dtype(std::string_view name) {
  if (name == "f32" || name == "float32" || name == "float") return DType::kF32;
  if (name == "f16" || name == "float16" || name == "half") return DType::kF16;
  if (name == "bf16" || name == "bfloat16") return DType::kBF16;
  if (name == "i32" || name == "int32") return DType::kI32;
  if (name == "i64" || name == "int64") return DType::kI64;
  if (name == "i16" || name == "int16") return DType::kI16;
  if (name == "i8" || name == "int8") return DType::kI8;
  if (name == "u8" || name == "uint8") return DType::kU8;
  if (name == "f64" || name == "float64" || name == "double") return DType::kF64;
  if (name == "bool") return DType::kBool;
  throw_error(ErrorCode::kInvalidArgument, "unknown dtype '{}'; known: float32, float16, bfloat16, int32, int64", name);
}

}  // namespace spyre
