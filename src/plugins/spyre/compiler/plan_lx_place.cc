#include "plugins/spyre/compiler/plan_lx_place.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "base/error.h"
#include "plugins/spyre/device/layout.h"

namespace spyre::compiler {
namespace {

constexpr int64_t kAlign = device::kStickBytes;
// Steps of annealing per request, and how many requests all of them may place (a second or so); the share of the worth
// that the first of them may lose on average.
constexpr int64_t kSteps = 60, kMostPlaced = 4'000'000;
constexpr double kFirstLoss = 0.1;

class Placer {
 public:
  Placer(const std::vector<LxRequest>& requests, int64_t capacity) : requests_(requests), capacity_(capacity) {
    const auto count = static_cast<int32_t>(requests.size());
    neighbours_.resize(requests.size());
    std::vector<int32_t> by_start(requests.size()), alive;
    std::iota(by_start.begin(), by_start.end(), 0);
    std::stable_sort(by_start.begin(), by_start.end(),
                     [&](int32_t a, int32_t b) { return requests[a].first < requests[b].first; });
    for (int32_t i = 0; i < count; ++i) {
      const int32_t r = by_start[i];
      std::erase_if(alive, [&](int32_t other) { return requests[other].last < requests[r].first; });
      for (const int32_t other : alive) {
        neighbours_[r].push_back(other);
        neighbours_[other].push_back(r);
      }
      alive.push_back(r);
    }
  }

  // First fit in the given order.
  std::vector<int64_t> place(const std::vector<int32_t>& order) {
    std::vector<int64_t> addresses(requests_.size(), -1);
    for (const int32_t r : order) addresses[r] = address_for(r, addresses);
    return addresses;
  }

 private:
  // Whether |later| may lie where |earlier| does.
  bool takes_over(int32_t later, int32_t earlier) const {
    const LxRequest &b = requests_[later], &a = requests_[earlier];
    return b.first == a.last && b.bytes <= a.bytes &&
           std::find(b.replaces.begin(), b.replaces.end(), earlier) != b.replaces.end();
  }

  int64_t address_for(int32_t r, const std::vector<int64_t>& addresses) {
    const int64_t bytes = requests_[r].bytes;
    if (bytes > capacity_) return -1;
    // In place first: it takes no room at all.
    for (const int32_t n : neighbours_[r]) {
      const bool pair = addresses[n] >= 0 && (takes_over(r, n) || takes_over(n, r));
      if (pair && addresses[n] + bytes <= capacity_ && free_at(r, addresses[n], addresses)) return addresses[n];
    }
    taken_.clear();
    for (const int32_t n : neighbours_[r]) {
      if (addresses[n] >= 0) taken_.emplace_back(addresses[n], addresses[n] + requests_[n].bytes);
    }
    std::sort(taken_.begin(), taken_.end());
    int64_t at = 0;
    for (const auto& [begin, end] : taken_) {
      if (at + bytes <= begin) break;
      at = std::max(at, device::round_up(end, kAlign));
    }
    return at + bytes <= capacity_ ? at : -1;
  }

  bool free_at(int32_t r, int64_t at, const std::vector<int64_t>& addresses) const {
    for (const int32_t n : neighbours_[r]) {
      const int64_t other = addresses[n];
      if (other < 0 || at + requests_[r].bytes <= other || other + requests_[n].bytes <= at) continue;
      if (at != other || !(takes_over(r, n) || takes_over(n, r))) return false;
    }
    return true;
  }

  const std::vector<LxRequest>& requests_;
  int64_t capacity_;
  std::vector<std::vector<int32_t>> neighbours_;  // whose live ranges meet
  std::vector<std::pair<int64_t, int64_t>> taken_;
};

// The most worth first: of equals the one that occupies less.
std::vector<int32_t> order_by_worth(const std::vector<LxRequest>& requests) {
  std::vector<int32_t> order(requests.size());
  std::iota(order.begin(), order.end(), 0);
  const auto room = [](const LxRequest& r) { return r.bytes * (r.last - r.first + 1); };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    if (requests[a].worth != requests[b].worth) return requests[a].worth > requests[b].worth;
    return room(requests[a]) < room(requests[b]);
  });
  return order;
}

std::vector<int64_t> anneal(const std::vector<LxRequest>& requests, Placer& placer) {
  std::vector<int32_t> order = order_by_worth(requests);
  std::vector<int64_t> best = placer.place(order);
  const auto count = static_cast<int32_t>(requests.size());
  if (count < 2) return best;
  int64_t most = 0;
  for (const LxRequest& r : requests) most += r.worth;
  int64_t now = placed_worth(requests, best), best_worth = now;
  std::mt19937 random(1);
  const int64_t steps = std::min(kSteps * count, kMostPlaced / count);
  for (int64_t step = 0; step < steps && best_worth < most; ++step) {
    const double temperature =
        kFirstLoss * static_cast<double>(most) * static_cast<double>(steps - step) / static_cast<double>(steps * count);
    const auto from = static_cast<int32_t>(random() % static_cast<uint32_t>(count));
    const auto to = static_cast<int32_t>(random() % static_cast<uint32_t>(count));
    std::swap(order[from], order[to]);
    const std::vector<int64_t> tried = placer.place(order);
    const int64_t worth = placed_worth(requests, tried);
    const double draw = static_cast<double>(random()) / 4294967296.0;
    if (worth >= now || draw < std::exp(static_cast<double>(worth - now) / temperature)) {
      now = worth;
    } else {
      std::swap(order[from], order[to]);
    }
    if (worth > best_worth) {
      best = tried;
      best_worth = worth;
    }
  }
  return best;
}

}  // namespace

int64_t placed_worth(const std::vector<LxRequest>& requests, const std::vector<int64_t>& addresses) {
  int64_t worth = 0;
  for (size_t i = 0; i < requests.size(); ++i) worth += addresses[i] >= 0 ? requests[i].worth : 0;
  return worth;
}

std::vector<int64_t> place_lx(const std::vector<LxRequest>& requests, int64_t capacity, LxSolver solver) {
  Placer placer(requests, capacity);
  return solver == LxSolver::kFirstFit ? placer.place(order_by_worth(requests)) : anneal(requests, placer);
}

}  // namespace spyre::compiler
