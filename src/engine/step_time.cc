#include "engine/step_time.h"

#include <algorithm>
#include <cmath>

namespace spyre::engine {
namespace {

constexpr double kMemory = 0.99;    // what a step still counts after the next one
constexpr double kOutlier = 3;      // times the usual error: from there on a step counts less
constexpr double kLeast = 1e-6;     // seconds; no step is shorter
constexpr double kQuantile = 0.95;  // of steps that stay below the margin
constexpr double kMarginStep = 0.03;
constexpr double kLeastMargin = 1.1;  // a step shares the machine with whatever else runs on it
constexpr int kSweeps = 30;
// The unit of each feature, so that the normal equations are well scaled.
constexpr std::array<double, 5> kUnits = {1, 1.0 / 256, 1.0 / 16, 1.0 / 16384, 1.0 / 65536};

}  // namespace

StepTimeModel::Vector StepTimeModel::features(const StepShape& s) {
  return {kUnits[0], static_cast<double>(s.prefill_tokens) * kUnits[1], static_cast<double>(s.decode_rows) * kUnits[2],
          s.decode_context * kUnits[3], s.prefill_pairs * kUnits[4]};
}

double StepTimeModel::fit(const StepShape& shape) const {
  const Vector x = features(shape);
  double seconds = 0;
  for (int i = 0; i < kCosts; ++i) seconds += costs_[i] * x[i];
  return seconds;
}

double StepTimeModel::predict(const StepShape& shape) const {
  return fit(shape) * margin_;
}

void StepTimeModel::observe(const StepShape& shape, double seconds) {
  seconds = std::max(seconds, kLeast);
  double weight = 1;
  if (observations_ >= kCosts) {
    const double error = seconds / std::max(fit(shape), kLeast) - 1, size = std::fabs(error);
    if (size > kOutlier * spread_) weight = kOutlier * spread_ / size;
    spread_ = std::clamp(0.98 * spread_ + 0.02 * std::min(size, 4 * spread_), 0.01, 1.0);
    // A quantile by small steps: up when a step came out above, down when below, in the ratio of their frequencies.
    margin_ += error + 1 > margin_ ? kMarginStep * kQuantile : -kMarginStep * (1 - kQuantile);
    margin_ = std::clamp(margin_, kLeastMargin, 2.0);
  }
  ++observations_;
  const Vector x = features(shape);
  weight /= seconds * seconds;
  Equations& kind = kinds_[(shape.prefill_tokens > 0 ? 1 : 0) + (shape.decode_rows > 0 ? 2 : 0)];
  for (int i = 0; i < kCosts; ++i) {
    for (int j = 0; j < kCosts; ++j) kind.normal[i][j] = kMemory * kind.normal[i][j] + weight * x[i] * x[j];
    kind.right[i] = kMemory * kind.right[i] + weight * x[i] * seconds;
  }
  solve();
}

// Least squares with no cost below 0: one cost after the other takes its best value given the rest, from where the last
// step left them. A cost that nothing has shown stays 0.
void StepTimeModel::solve() {
  Equations sum;
  for (const Equations& kind : kinds_) {
    for (int i = 0; i < kCosts; ++i) {
      for (int j = 0; j < kCosts; ++j) sum.normal[i][j] += kind.normal[i][j];
      sum.right[i] += kind.right[i];
    }
  }
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (int i = 0; i < kCosts; ++i) {
      if (sum.normal[i][i] <= 0) continue;
      double rest = sum.right[i];
      for (int j = 0; j < kCosts; ++j) {
        if (j != i) rest -= sum.normal[i][j] * costs_[j];
      }
      costs_[i] = std::max(0.0, rest / sum.normal[i][i]);
    }
  }
}

int64_t StepTimeModel::largest_chunk(StepShape shape, int64_t start, int64_t most, double seconds) const {
  const auto fits = [&](int64_t tokens) {
    StepShape with = shape;
    with.add_prefill(start, tokens);
    return predict(with) <= seconds;
  };
  if (most < 1 || fits(most)) return std::max<int64_t>(most, 0);
  int64_t good = 0, bad = most;  // the time grows with the tokens
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

}  // namespace spyre::engine
