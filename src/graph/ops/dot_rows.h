// Many dot products at once, for the interpreter: out[i, j] = dot(x[i, :], w[:, j]) in a named order, with the bits of
// the scalar forms in base/dot_orders.h (finite results; the sign of a NaN is nobody's promise).
//
// Not a kernel of the product: it is only fast enough to let a small model run through the interpreter in seconds.
#pragma once

#include <cstdint>

#include "base/dot_orders.h"

namespace spyre::graph {

struct DotRows {
  const float* x = nullptr;  // [rows, k], contiguous
  const float* w = nullptr;  // element (k, n) at w[k * k_stride + n * n_stride]
  float* out = nullptr;      // [rows, n], contiguous, not rounded
  int64_t rows = 0, k = 0, n = 0;
  int64_t k_stride = 0, n_stride = 0;
  DotOrder order = DotOrder::kSequential;
  bool bf16 = false;  // the operands are bf16: products may leave the normal range of fp32 and then need a true fma
};

// REQUIRES: ScopedFlushDenormals in the calling thread when bits matter.
void dot_rows(const DotRows& call);

}  // namespace spyre::graph
