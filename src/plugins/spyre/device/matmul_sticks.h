// The sticks of a batchmatmul, x[..., M, K] @ y[..., K, N], by element type. Source: the stick tables of the interface
// specifications (M; those of 8 and 4 bits have not been tried by us).
//
//   type        x stick              y stick         result
//   DL16        K=64                 N=64            N=64, DL16
//   FP8, INT8   K=128                K=2, N=64       N=64, DL16
//   INT4        K=16, M=2, K=8       K=4, N=64       N=64, DL16
//
// So the result of one product is the x of the next as it is, and a transposed y needs a restickify.
#pragma once

#include <cstdint>
#include <vector>

#include "plugins/spyre/device/layout.h"

namespace spyre::device {

struct MatmulShape {
  std::vector<int64_t> batch;
  int64_t m = 1, k = 1, n = 1;
};

struct MatmulLayouts {
  Layout x, y, out;
};

// Throws Error(kRuleViolation): L-04 for fp32 and int32, L-19 for more than two batch dimensions.
MatmulLayouts matmul_layouts(CardType type, const MatmulShape& shape);

// Throws Error(kRuleViolation), L-37, naming the first of the three that lies in other sticks.
void check_matmul_layouts(const MatmulLayouts& given);

}  // namespace spyre::device
