// The tensor types of GGUF, and the ones that can be turned into floats.
//
// A block type packs `block` neighbouring elements of a row into `bytes`; the element order is the row's. Values (d and
// m are f16, widened exactly):
//   Q8_0  32 in 34 bytes: d, 32 x i8       x[i] = d * q[i]
//   Q4_0  32 in 18 bytes: d, 16 x u8       x[i] = d * (q[i] - 8)
//   Q4_1  32 in 20 bytes: d, m, 16 x u8    x[i] = d * q[i] + m, product exact, sum rounded to fp32
//   Q5_0  32 in 22 bytes: d, u32, 16 x u8  x[i] = d * (q[i] - 16); bit i of the u32 is the fifth of q[i]
//   Q5_1  32 in 24 bytes: d, m, u32, 16 x u8   x[i] = d * q[i] + m
// Of a byte i with two elements, the low nibble is q[i] and the high one q[i + 16].
//
// The K types have 256 elements, in groups of 32 (Q4_K, Q5_K) or 16 (Q2_K, Q3_K, Q6_K) with integer scales s (and
// minima t) of their own; m is f16, too:
//   Q2_K  84 bytes: 16 x u8 with s and t (4 bits each), 64 x u8, d, m              x[i] = (d * s) * q[i] - m * t
//   Q3_K  110 bytes: 32 x u8 of third bits, 64 x u8, 12 bytes of s (6 bits), d     x[i] = (d * (s - 32)) * (q[i] - 4)
//   Q4_K  144 bytes: d, m, 12 bytes of s and t (6 bits each), 128 x u8             x[i] = (d * s) * q[i] - m * t
//   Q5_K  176 bytes: d, m, 12 bytes of s and t, 32 x u8 of fifth bits, 128 x u8    as Q4_K
//   Q6_K  210 bytes: 128 x u8, 64 x u8 of upper bits, 16 x i8 s, d                 x[i] = (d * s) * (q[i] - 32)
// IQ4 types look their 4 bits up in a grid g of 16 numbers:
//   IQ4_NL 32 in 18 bytes: d, 16 x u8                                              x[i] = d * g[q[i]]
//   IQ4_XS 256 in 136 bytes, groups of 32: d, u16 and 4 bytes of s, 128 x u8       x[i] = (d * (s - 32)) * g[q[i]]
// Products in parentheses and m * t are exact (11 + 8 bits at most); the rest is rounded once per operation.
// Source: ggml's block definitions; the bits are those of the Python package `gguf`.
//
// All functions are stateless; any thread. A 16-bit target is rounded once (base/half.h) from the fp32 value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/dtype.h"
#include "base/export.h"

namespace spyre::formats {

enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kIQ4_XS = 23,
  kBF16 = 30
};

struct GgmlTypeInfo {
  uint32_t number;
  const char* name;
  uint32_t block;  // elements
  uint32_t bytes;  // per block
};

// Known sizes, for more types than can be dequantised: nullptr for a number nobody has given a meaning.
SPYRE_API const GgmlTypeInfo* find_ggml_type(uint32_t number);
SPYRE_API bool can_dequantize(uint32_t number);
SPYRE_API std::string dequantizable_types();  // "F32, F16, ...", for messages

// `n` elements from whole blocks at `source` (any alignment). REQUIRES: n is a multiple of the block size.
void dequantize_q8_0(const std::byte* source, size_t n, float* out);
void dequantize_q4_0(const std::byte* source, size_t n, float* out);
void dequantize_q4_1(const std::byte* source, size_t n, float* out);
void dequantize_q5_0(const std::byte* source, size_t n, float* out);
void dequantize_q5_1(const std::byte* source, size_t n, float* out);
void dequantize_q2_k(const std::byte* source, size_t n, float* out);
void dequantize_q3_k(const std::byte* source, size_t n, float* out);
void dequantize_q4_k(const std::byte* source, size_t n, float* out);
void dequantize_q5_k(const std::byte* source, size_t n, float* out);
void dequantize_q6_k(const std::byte* source, size_t n, float* out);
void dequantize_iq4_nl(const std::byte* source, size_t n, float* out);
void dequantize_iq4_xs(const std::byte* source, size_t n, float* out);
void widen_f32(const std::byte* source, size_t n, float* out);
void widen_f16(const std::byte* source, size_t n, float* out);
void widen_bf16(const std::byte* source, size_t n, float* out);

// By type number. REQUIRES: can_dequantize(type). kInvalidArgument when n is no multiple of the block size.
SPYRE_API void dequantize(uint32_t type, const std::byte* source, size_t n, float* out);

// fp32 to `target` (f32, f16 or bf16; else kInvalidArgument), one rounding, at any address.
SPYRE_API void narrow(const float* source, size_t n, DType target, std::byte* out);

}  // namespace spyre::formats
