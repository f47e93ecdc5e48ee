// The scalar definition of every function and reduction that a program computes, as short loops in the exact order of
// docs/numerics.md §3-§6. The exact interpreter calls them, and every SIMD kernel is tested against them bit for bit:
// where a kernel and this file differ, the kernel is wrong.
//
// Rows are fp32 arrays. With a 16-bit `dtype` their elements must be values of that dtype (what round_to gives), and
// results are rounded at every rounding point of that dtype; with kF32 nothing is rounded. Pure functions: any thread,
// no state; the thread must hold ScopedFlushDenormals for the promised bits. In place (y == x) is allowed for rows.
// Nothing here calls libm except for the correctly rounded sqrt and fma.
#pragma once

#include <cstdint>
#include <limits>

#include "base/dot_orders.h"
#include "base/dtype.h"
#include "base/export.h"

namespace spyre {

// ---- Constants, shared with the SIMD forms (plain constexpr: internal linkage, so that a kernel file compiled for a
// newer CPU defines no symbol of its own). Polynomials are minimax fits, lowest power first; the error is that of the
// exact polynomial.
namespace math {
constexpr float kLog2E = 1.44269504f;
constexpr float kLn2High = 0.693359375f;  // 9 bits: n * kLn2High is exact for |n| <= 2^14
constexpr float kLn2Low = -2.12194440e-4f;
constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23: x + magic - magic is rint(x) for |x| < 2^22
constexpr float kExpLowest = -87.33f;       // below: +0; here the result is still a normal number
constexpr float kExpHighest = 88.72f;       // above: infinity
// exp(r) = 1 + r + r^2 P(r) on |r| <= ln(2)/2, relative error 3.2e-9.
constexpr float kExp[] = {0.5000000095f, 0.1666651856f, 0.04166620517f, 0.008368923072f, 0.001395053421f};
// log(1 + f) = f - f^2/2 + f^3 P(f) on sqrt(1/2) <= 1 + f <= sqrt(2), relative error 7.5e-10.
constexpr float kLog[] = {0.3333331261f,  -0.250000096f, 0.2000211854f, -0.1666799593f, 0.1421955488f,
                          -0.1240558958f, 0.1188814505f, -0.116756402f, 0.06746663403f};
// tanh(x) = x (1 + x^2 P(x^2)) for |x| < 0.625, relative error 4.9e-9.
constexpr float kTanhSplit = 0.625f;
constexpr float kTanh[] = {-0.3333329495f, 0.1333172511f, -0.0537598244f, 0.02069691449f, -0.005763204978f};
// erf(x) = x P(x^2) for |x| < 1, relative error 1.3e-9.
constexpr float kErf[] = {1.128379166f,    -0.3761262582f,    0.1128358514f,  -0.02685381149f,
                          0.005188326884f, -0.0008010186862f, 7.853839756e-5f};
// erfc(a) = exp(-P(a)) for 1 <= a <= 4, absolute error 1.1e-9; erf(4) is 1 in fp32.
constexpr float kErfcLog[] = {0.0003537333222f, 1.127039978f,    0.6382257762f,    0.1030372809f,
                              -0.02180527551f,  0.002939596447f, -0.0001855728907f};
constexpr float kSqrtHalf = 0.707106781f;
constexpr float kGeluTanhScale = 0.7978845608f;  // sqrt(2 / pi)
constexpr float kGeluTanhCube = 0.044715f;
}  // namespace math

// ---- Elementwise functions of one or two numbers, before the rounding to the storage dtype.
SPYRE_API float exp_f32(float x);   // <= 2 ulp; +0 below -87.33, infinity above 88.72, NaN stays NaN
SPYRE_API float log_f32(float x);   // <= 2 ulp; -infinity at 0, NaN below
SPYRE_API float tanh_f32(float x);  // <= 4 ulp
SPYRE_API float erf_f32(float x);   // <= 4 ulp
SPYRE_API float sigmoid_f32(float x);
SPYRE_API float silu_f32(float x);
SPYRE_API float gelu_f32(float x);       // the exact form, by erf
SPYRE_API float gelu_tanh_f32(float x);  // the tanh form
SPYRE_API float relu_f32(float x);       // maximum_f32(x, +0)
SPYRE_API float rsqrt_f32(float x);      // 1 / sqrt(x), each correctly rounded
// A NaN wins, whichever side; of two equal numbers (zeros of either sign) the second is the result.
SPYRE_API float maximum_f32(float a, float b);
SPYRE_API float minimum_f32(float a, float b);

// `x` as `dtype` stores it, back in fp32. REQUIRES: dtype is f32, f16 or bf16.
SPYRE_API float round_to(DType dtype, float x);
// A stored 16-bit word to fp32 and back; REQUIRES: dtype is f16 or bf16.
SPYRE_API float load_16bit(DType dtype, uint16_t word);
SPYRE_API uint16_t store_16bit(DType dtype, float x);

// ---- Reductions and rows of n >= 1 elements.
SPYRE_API float tree16_sum(const float* x, int64_t n);      // sixteen lanes, then a tree
SPYRE_API float tree16_maximum(const float* x, int64_t n);  // the same order with maximum_f32, lanes starting at -inf
SPYRE_API float reduce_sum_row(DType dtype, const float* x, int64_t n);
SPYRE_API float reduce_mean_row(DType dtype, const float* x, int64_t n);
SPYRE_API float reduce_max_row(const float* x, int64_t n);

SPYRE_API void rms_norm_row(DType dtype, const float* x, const float* weight /* may be null */, float eps, float* y,
                            int64_t n);
SPYRE_API void layer_norm_row(DType dtype, const float* x, const float* weight /* may be null */,
                              const float* bias /* may be null */, float eps, float* y, int64_t n);
SPYRE_API void softmax_row(DType dtype, const float* x, float* y, int64_t n);
// One head of d elements (even); cos and sin have d / 2. Not in place.
SPYRE_API void rotate_half_row(DType dtype, const float* x, const float* cos, const float* sin, float* y, int64_t d);

// ---- Attention (§6).
constexpr int64_t kAttentionStep = 64;    // keys per step of the online softmax, at absolute multiples
constexpr int64_t kAttentionRange = 512;  // keys per range: ranges start from an empty state and are merged in order

struct AttentionMath {
  DType dtype = DType::kF16;               // of q, k, v, of the softmax weights and of the result
  DotOrder order = DotOrder::kSequential;  // f16 and f32: sequential; bf16: pair or tile
  float scale = 1;
  float soft_cap = 0;  // 0: none
};

// Online softmax state of one query row; l == 0 means that no visible key has been met.
struct AttentionState {
  float m = -std::numeric_limits<float>::infinity();
  float l = 0;
};

// One step: advances (state, acc[d]) over the keys [lo, hi) of the 64 tokens that begin at `k`, `v` (row strides in
// elements; rows outside [lo, hi) are not read). 0 <= lo, hi <= 64; a no-op when lo >= hi.
SPYRE_API void attend_step(const AttentionMath& math, const float* q, int64_t d, const float* k, int64_t k_stride,
                           const float* v, int64_t v_stride, int64_t lo, int64_t hi, AttentionState& state, float* acc);
// Merges the state of a later range into that of the ranges before it.
SPYRE_API void attend_merge(AttentionState& earlier, float* acc, const AttentionState& later, const float* later_acc,
                            int64_t d);
// The whole of one query row: keys [lo, hi), token t at k + t * k_stride. y has d elements, rounded to dtype; zeros
// when no key is visible.
SPYRE_API void attend_reference(const AttentionMath& math, const float* q, int64_t d, const float* k, int64_t k_stride,
                                const float* v, int64_t v_stride, int64_t lo, int64_t hi, float* y);

}  // namespace spyre
