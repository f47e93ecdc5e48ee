#include "plugins/spyre/compiler/divide_work.h"

#include <algorithm>
#include <numeric>

namespace spyre::compiler {
namespace {

int64_t product(const std::vector<int64_t>& splits) {
  return std::accumulate(splits.begin(), splits.end(), int64_t{1}, std::multiplies<>());
}

int64_t span(const SpannedOperand& operand, const std::vector<int64_t>& splits) {
  int64_t parts = 1;
  for (int d : operand.dims) parts *= splits[d];
  return operand.bytes / parts;
}

// The largest divisor of |extent| above |current|, at most |most|.
int64_t largest_split(int64_t extent, int64_t current, int64_t most) {
  for (int64_t split = std::min(extent, most); split > current; --split) {
    if (extent % split == 0) return split;
  }
  return current;
}

int64_t next_split(int64_t extent, int64_t current, int64_t most) {
  for (int64_t split = current + 1; split <= std::min(extent, most); ++split) {
    if (extent % split == 0) return split;
  }
  return current;
}

// Tries every exact division of dims[d ..] within |cores|, keeping the cheapest; the first of equals.
void search(const std::vector<IterationDim>& dims, size_t d, int64_t cores, const DivisionScore& score,
            std::vector<int64_t>& splits, std::vector<int64_t>& best, double& least) {
  if (d == dims.size()) {
    const double cost = score(splits);
    if (best.empty() || cost < least) {
      best = splits;
      least = cost;
    }
    return;
  }
  const int64_t others = product(splits);
  for (int64_t split = 1; split <= std::min(dims[d].extent, cores / others); ++split) {
    if (dims[d].extent % split != 0) continue;
    splits[d] = split;
    search(dims, d + 1, cores, score, splits, best, least);
  }
  splits[d] = 1;
}

}  // namespace

std::vector<int64_t> divide_work(const std::vector<IterationDim>& dims, const std::vector<SpannedOperand>& operands,
                                 const std::string& what, RuleLog& log, const DivisionScore& score, int64_t cores) {
  std::vector<int64_t> splits(dims.size(), 1);
  auto most = [&](int d) { return cores / (product(splits) / splits[d]); };
  // Spans first, by the smallest splits that help: output dimensions before the reduced one.
  for (const SpannedOperand& operand : operands) {
    for (const bool reduced : {false, true}) {
      for (int d : operand.dims) {
        while (dims[d].reduced == reduced && span(operand, splits) > kMaxSpanBytes) {
          const int64_t split = next_split(dims[d].extent, splits[d], most(d));
          if (split == splits[d]) break;
          splits[d] = split;
        }
      }
    }
    require_rule(log, device::Rule::kSpan, span(operand, splits) <= kMaxSpanBytes, [&] {
      return fmt::format("{}: a core would touch {} bytes of {} after splitting it as far as it goes", what,
                         span(operand, splits), operand.name);
    });
  }
  if (score && product(splits) == 1) {
    std::vector<int64_t> best;
    double least = 0;
    search(dims, 0, cores, score, splits, best, least);
    return best;
  }
  // Then as many cores as there are: output dimensions, the largest first, then a reduced one.
  std::vector<int> order(dims.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    if (dims[a].reduced != dims[b].reduced) return dims[b].reduced;
    return dims[a].extent > dims[b].extent;
  });
  for (int d : order) splits[d] = largest_split(dims[d].extent, splits[d], most(d));
  return splits;
}

}  // namespace spyre::compiler
