// The named orders in which a dot product of 16-bit operands is summed (docs/numerics.md §2), and their definition as
// naive loops. The exact interpreter calls these functions and every SIMD kernel is tested against them bit for bit.
//
// All of them expect ScopedFlushDenormals in the calling thread. `a` is contiguous; element k of the other operand is
// b[k * b_stride], so that a column of a row-major [K, N] matrix needs no copy. `start` is the accumulator to go on
// from: blocking over K passes the partial result of the block before (`tile`: blocks are multiples of 32, `pair`: of
// 2).
#pragma once

#include <cstdint>
#include <string_view>

#include "base/cpu.h"
#include "base/dtype.h"
#include "base/export.h"

namespace spyre {

enum class DotOrder : uint8_t { kSequential, kPair, kTile };
enum class OrderChoice : uint8_t { kAuto, kPair, kTile };  // what --order says

SPYRE_API std::string_view to_string(DotOrder order);             // "sequential", "pair", "tile"
SPYRE_API OrderChoice parse_order_choice(std::string_view name);  // "auto", "pair", "tile"; throws kInvalidArgument

// The order of a dtype on a machine. bf16: as chosen, auto being `tile` where there is AMX-BF16 and `pair` elsewhere.
// Every other dtype: sequential. `uncapped` is CpuFeatures::detected(): a cap must not change bits.
SPYRE_API DotOrder resolve_order(DType dtype, OrderChoice choice, const CpuFeatures& uncapped);

SPYRE_API float dot_sequential_f32(const float* a, const float* b, int64_t k, int64_t b_stride = 1, float start = 0);
SPYRE_API float dot_sequential_f16(const uint16_t* a, const uint16_t* b, int64_t k, int64_t b_stride = 1,
                                   float start = 0);
SPYRE_API float dot_pair(const uint16_t* a, const uint16_t* b, int64_t k, int64_t b_stride = 1, float start = 0);
SPYRE_API float dot_tile(const uint16_t* a, const uint16_t* b, int64_t k, int64_t b_stride = 1, float start = 0);

// The one of f16 `sequential`, bf16 `pair` and bf16 `tile` that `order` names.
SPYRE_API float dot(DotOrder order, const uint16_t* a, const uint16_t* b, int64_t k, int64_t b_stride = 1,
                    float start = 0);

// fma(a, b, c) for operands that came from 16 bits. Their product has at most 22 significant bits, so wherever it is a
// normal number it is exact and one add gives the fused result; only a product outside that range needs the real fma.
SPYRE_API float fma_of_16bit(float a, float b, float c);

}  // namespace spyre
