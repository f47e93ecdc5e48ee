// Element types of tensors and files, and the scalar conversions between the 16-bit ones and fp32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/export.h"

namespace spyre {

enum class DType : uint8_t { kF32, kF16, kBF16, kI32, kI64, kI8, kU8, kBool, kF64, kI16 };

SPYRE_API size_t size_of(DType dtype);              // bytes per element
SPYRE_API std::string_view to_string(DType dtype);  // "f32", "f16", "bf16", "i32", ...
SPYRE_API DType parse_dtype(std::string_view name);  // also "float16", "bfloat16", "half", ...; throws kInvalidArgument

inline bool is_16bit_float(DType d) { return d == DType::kF16 || d == DType::kBF16; }
inline bool is_float(DType d) { return d == DType::kF32 || is_16bit_float(d) || d == DType::kF64; }

}  // namespace spyre
