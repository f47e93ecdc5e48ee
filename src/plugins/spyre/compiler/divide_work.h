// How an operation is divided over the card's 32 cores: each dimension is split exactly, the stick dimension counted in
// sticks; the product of the splits is at most 32; at most one reduced dimension is split, and only of a matmul. A core
// may touch at most 256 MiB of one operand (L-15).
//
// Three passes, as the card's own planner has them: spans are brought within the limit; a matmul takes the cheapest of
// all divisions by |score| (unless a span had to be mended); everything else takes the largest output dimensions first.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plugins/spyre/compiler/card_plan.h"
#include "plugins/spyre/compiler/lower/iteration.h"
#include "plugins/spyre/device/core_map.h"

namespace spyre::compiler {

using device::kCores;
inline constexpr int64_t kMaxSpanBytes = int64_t{256} << 20;

struct SpannedOperand {
  std::string name;
  int64_t bytes = 0;
  std::vector<int> dims;  // iteration dimensions it has: splitting one of them shortens its span
};

using DivisionScore = std::function<double(const std::vector<int64_t>& splits)>;

// Splits, parallel to |dims|, over |cores| at most. |what| names the operation in a refusal.
std::vector<int64_t> divide_work(const std::vector<IterationDim>& dims, const std::vector<SpannedOperand>& operands,
                                 const std::string& what, RuleLog& log, const DivisionScore& score = {},
                                 int64_t cores = kCores);

}  // namespace spyre::compiler
