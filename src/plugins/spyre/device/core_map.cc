#include "plugins/spyre/device/core_map.h"

#include <functional>
#include <numeric>

namespace spyre::device {

int64_t core_count(std::span<const int64_t> splits) {
  return std::accumulate(splits.begin(), splits.end(), int64_t{1}, std::multiplies<>());
}

int64_t slice_of_core(std::span<const int64_t> splits, size_t dim, int64_t core) {
  return core / core_count(splits.first(dim)) % splits[dim];
}

CoreView core_view(const DeviceOp& op, size_t operand) {
  const std::vector<int>& walks = op.walks.at(operand);
  CoreView view;
  for (const int dim : walks) view.slices.push_back(dim < 0 ? 1 : op.splits[dim]);
  view.has.resize(static_cast<size_t>(core_count(op.splits)));
  for (size_t core = 0; core < view.has.size(); ++core) {
    for (const int dim : walks) {
      view.has[core].push_back(dim < 0 ? 0 : slice_of_core(op.splits, dim, static_cast<int64_t>(core)));
    }
  }
  return view;
}

}  // namespace spyre::device
