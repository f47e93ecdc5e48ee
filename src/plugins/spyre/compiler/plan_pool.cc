#include "plugins/spyre/compiler/plan_pool.h"

#include <algorithm>
#include <utility>

#include "plugins/spyre/device/layout.h"

namespace spyre::compiler {

using device::BufferHome;

namespace {

// Of one segment of 16 GiB (torch-spyre #2556, H).
constexpr int64_t kMaxPoolBytes = int64_t{14} << 30;

int64_t bound(const std::vector<PoolRequest>& requests) {
  std::vector<std::pair<int32_t, int64_t>> changes;
  for (const PoolRequest& r : requests) {
    const int64_t bytes = device::round_up(r.bytes, device::kStickBytes);
    changes.emplace_back(r.first, bytes);
    changes.emplace_back(r.last + 1, -bytes);
  }
  std::sort(changes.begin(), changes.end());  // what ends before something begins makes room for it
  int64_t live = 0, most = 0;
  for (const auto& [at, bytes] : changes) most = std::max(most, live += bytes);
  return most;
}

}  // namespace

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
  plan.lower_bound = bound(requests);
  return plan;
}

std::vector<LiveRange> live_ranges(const device::CardPlan& plan) {
  std::vector<LiveRange> ranges(plan.buffers.size());
  // A sequence of device operations works on its operands until its last one, which names them again.
  for (int32_t i = 0; i < static_cast<int32_t>(plan.ops.size()); ++i) {
    for (const std::vector<int32_t>* list : {&plan.ops[i].inputs, &plan.ops[i].outputs}) {
      for (const int32_t b : *list) {
        if (b < 0) continue;
        LiveRange& range = ranges[plan.buffers[b].view ? plan.buffers[b].base : b];
        if (range.first < 0) range.first = i;
        range.last = i;
      }
    }
  }
  return ranges;
}

int64_t plan_pool(CardState& state) {
  device::CardPlan& plan = state.plan;
  const std::vector<LiveRange> ranges = live_ranges(plan);
  std::vector<PoolRequest> requests;
  std::vector<size_t> owners;
  for (size_t b = 0; b < ranges.size(); ++b) {
    if (plan.buffers[b].home != BufferHome::kPool || plan.buffers[b].view) continue;
    requests.push_back({plan.buffers[b].spec.card_bytes(), ranges[b].first, ranges[b].last});
    owners.push_back(b);
  }
  const PoolPlan pool = plan_pool(requests);
  for (size_t i = 0; i < owners.size(); ++i) plan.buffers[owners[i]].pool_offset = pool.offsets[i];
  plan.pool_bytes = pool.bytes;
  plan.pool_lower_bound = pool.lower_bound;
  require_rule(state.log, device::Rule::kPoolSegment, pool.bytes <= kMaxPoolBytes, [&] {
    return fmt::format("the intermediate values of graph '{}' take {} bytes, {} of them at once", state.graph.name,
                       pool.bytes, pool.lower_bound);
  });
  return static_cast<int64_t>(owners.size());
}

}  // namespace spyre::compiler
