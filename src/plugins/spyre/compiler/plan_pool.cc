#include "plugins/spyre/compiler/plan_pool.h"

#include <algorithm>
#include <utility>

#include "plugins/spyre/device/layout.h"

namespace spyre::compiler {

PoolPlan plan_pool(const std::vector<PoolRequest>& requests) {
  PoolPlan plan;
  std::vector<std::pair<int64_t, int64_t>> taken;  // [begin, end) of what lives at the same time
  for (size_t i = 0; i < requests.size(); ++i) {
    const PoolRequest& r = requests[i];
    taken.clear();
    for (size_t j = 0; j < i; ++j) {
      if (requests[j].last < r.first || r.last < requests[j].first) continue;
      taken.emplace_back(plan.offsets[j], plan.offsets[j] + requests[j].bytes);
    }
    std::sort(taken.begin(), taken.end());
    int64_t at = 0;
    for (const auto& [begin, end] : taken) {
      if (at + r.bytes <= begin) break;
      at = std::max(at, device::round_up(end, device::kStickBytes));
    }
    plan.offsets.push_back(at);
    plan.bytes = std::max(plan.bytes, at + device::round_up(r.bytes, device::kStickBytes));
  }
  return plan;
}

}  // namespace spyre::compiler
