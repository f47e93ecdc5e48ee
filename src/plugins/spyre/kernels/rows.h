// Row kernels: everything a program does to rows of 16-bit numbers apart from matrix products and attention.
//
// A row is n >= 0 contiguous words of the table's dtype (f16 or bf16), at any alignment; the residual stream of the
// *_wide kernels is rows of floats. Each kernel gives, bit for
// bit, what the scalar form in base/vector_math.h gives (docs/numerics.md §3-§5), on every instruction set. Outputs may
// be the same row as an input ("in place") unless stated; they may not overlap an input in any other way. Weights,
// biases and the like are rows of the same dtype. Kernels are plain functions: any thread, no state, no allocation. The
// thread holds ScopedFlushDenormals.
//
// This header is included by files compiled for one instruction set: it declares plain data and extern functions only.
#pragma once

#include <cstdint>

#include "base/cpu.h"
#include "base/dtype.h"

namespace spyre::kernels {

enum class UnaryOp : uint8_t {
  kNeg,
  kAbs,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kExp,
  kLog,
  kTanh,
  kSigmoid,
  kSilu,
  kRelu,
  kGelu,
  kGeluTanh,
};
constexpr int kUnaryOps = 13;

enum class BinaryOp : uint8_t { kAdd, kSub, kMul, kDiv, kMaximum, kMinimum };
constexpr int kBinaryOps = 6;

enum class ReduceOp : uint8_t { kSum, kMean, kMax };
constexpr int kReduceOps = 3;

struct RowKernels {
  const char* name;  // "f16_avx512", ...
  DType dtype;
  CpuLevel level;  // the least machine that runs it

  // y = op(x).
  void (*unary)(UnaryOp op, const uint16_t* x, uint16_t* y, int64_t n);
  // y = op(a, b).
  void (*binary)(BinaryOp op, const uint16_t* a, const uint16_t* b, uint16_t* y, int64_t n);
  // y = op(a, b) with one fp32 number b, which the caller has rounded to the dtype where the graph says so.
  void (*binary_scalar)(BinaryOp op, const uint16_t* a, float b, uint16_t* y, int64_t n);
  // y = round(round(op(gate)) * up): SwiGLU with kSilu, GeGLU with kGelu or kGeluTanh.
  void (*activate_mul)(UnaryOp op, const uint16_t* gate, const uint16_t* up, uint16_t* y, int64_t n);

  // weight and bias may be null: no such step.
  void (*rms_norm)(const uint16_t* x, const uint16_t* weight, float eps, uint16_t* y, int64_t n);
  // sum = round(x + residual), y = rms_norm(sum). `sum` may be x or residual; y may be x or residual when sum is not.
  void (*add_rms_norm)(const uint16_t* x, const uint16_t* residual, const uint16_t* weight, float eps, uint16_t* sum,
                       uint16_t* y, int64_t n);
  // The same over a residual stream in fp32: nothing is rounded but y, once. `sum` may be residual.
  void (*rms_norm_wide)(const float* x, const uint16_t* weight, float eps, uint16_t* y, int64_t n);
  void (*add_rms_norm_wide)(const uint16_t* x, const float* residual, const uint16_t* weight, float eps, float* sum,
                            uint16_t* y, int64_t n);
  void (*layer_norm)(const uint16_t* x, const uint16_t* weight, const uint16_t* bias, float eps, uint16_t* y,
                     int64_t n);
  void (*softmax)(const uint16_t* x, uint16_t* y, int64_t n);
  // One word of the dtype. REQUIRES: n >= 1.
  uint16_t (*reduce)(ReduceOp op, const uint16_t* x, int64_t n);

  // One head of d elements (even), in place allowed; cos and sin have d / 2.
  void (*rotate_half)(const uint16_t* x, const uint16_t* cos, const uint16_t* sin, uint16_t* y, int64_t d);

  void (*to_f32)(const uint16_t* x, float* y, int64_t n);
  void (*from_f32)(const float* x, uint16_t* y, int64_t n);
  // False when an element is an infinity or a NaN.
  bool (*all_finite)(const uint16_t* x, int64_t n);
};

// The fastest table that `features` run. throws kUnsupported for a dtype that is neither f16 nor bf16.
const RowKernels& select_row_kernels(const CpuFeatures& features, DType dtype);

// Every table of this build, the faster ones of a dtype first. Tests and benchmarks walk it.
struct RowKernelList {
  const RowKernels* first;
  const RowKernels* last;
  const RowKernels* begin() const { return first; }
  const RowKernels* end() const { return last; }
};
RowKernelList all_row_kernels();

// Whether a machine with `features` runs what needs `level`.
bool level_runs_on(CpuLevel level, const CpuFeatures& features);

// Gathers row `index` of a [rows, n] table of 16-bit words (an embedding). No arithmetic, so one form for all dtypes.
void copy_row(const uint16_t* table, int64_t index, int64_t n, uint16_t* y);

// --- two per instruction set, f16 and bf16 ---
// Constants, not functions that give them: a machine that lacks an instruction set may read its tables, and must not
// run a single instruction of its file.
extern const RowKernels kRowKernelsPortable[2], kRowKernelsAvx2[2], kRowKernelsAvx512[2], kRowKernelsAvx512Bf16[2];

}  // namespace spyre::kernels
