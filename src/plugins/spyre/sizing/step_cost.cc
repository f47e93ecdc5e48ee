#include "plugins/spyre/sizing/step_cost.h"

#include <algorithm>

#include "plugins/spyre/device/layout.h"

namespace spyre::sizing {
namespace {

using device::CostConfig;
using device::OpWork;

constexpr int64_t kCores = 32;
constexpr int64_t kStick = device::kStickBytes / kElementBytes;
constexpr int64_t kNormPasses = 3;  // exx2, scale, norm

// The cheapest exact division of rows and column sticks by the planner's own score; K stays whole.
OpWork product(int64_t rows, int64_t reduced, int64_t columns) {
  const int64_t sticks = columns / kStick;
  OpWork best;
  double least = 0;
  for (int64_t m = 1; m <= std::min(rows, kCores); ++m) {
    if (rows % m != 0) continue;
    for (int64_t n = 1; n <= std::min(sticks, kCores / m); ++n) {
      if (sticks % n != 0) continue;
      const device::MatmulDivision division{.macs = rows * reduced * columns,
                                            .cores = m * n,
                                            .rows_per_core = rows / m,
                                            .out_elements = rows * columns,
                                            .x_bytes = rows * reduced * kElementBytes,
                                            .x_fanout = n,
                                            .w_bytes = reduced * columns * kElementBytes,
                                            .w_fanout = m,
                                            .out_bytes = rows * columns * kElementBytes};
      const double score = device::planner_ns(division);
      if (best.macs != 0 && score >= least) continue;
      least = score;
      best = {.macs = division.macs,
              .read_bytes = division.x_bytes + division.w_bytes,
              .write_bytes = division.out_bytes,
              .cores = m * n,
              .rows_per_core = rows / m};
    }
  }
  return best;
}

// |passes| elementwise passes over |in| elements that are read, |out| written.
OpWork elementwise(int64_t in, int64_t out, int64_t passes) {
  return {.elements = passes * std::max(in, out),
          .read_bytes = in * kElementBytes,
          .write_bytes = out * kElementBytes,
          .cores = kCores};
}

class ShapeParts final : public StepParts {
 public:
  ShapeParts(const ModelShape& shape, const CardShare& share) : shape_(shape), share_(share) {}

  PartCost body(const CostConfig& config, int64_t rows) override {
    const int64_t q = share_.heads * share_.head_size, kv = share_.kv_heads * share_.head_size, h = share_.hidden;
    PartCost layer;
    const auto add = [&](const OpWork& work) { layer += cost_of(config, work); };
    const OpWork norm = elementwise(2 * rows * h, 2 * rows * h, kNormPasses);  // with the residual
    add(norm);
    add(product(rows, h, q + 2 * kv));
    if (shape_.rotary) add(elementwise(rows * (q + kv), rows * (q + kv), 3));
    add(elementwise(2 * rows * kv, 2 * rows * kv, 1));  // the store
    add(product(rows, q, h));
    add(norm);
    add_mlp(rows, add);
    PartCost all = layer.times(shape_.layers);
    all += cost_of(config, norm);
    all += cost_of(config, elementwise(rows * h, rows * h, 1));  // the embedding
    return all;
  }

  // Logits leave in fp32.
  PartCost head(const CostConfig& config, int64_t rows) override {
    if (share_.vocab_rows == 0) return {};
    OpWork work = product(rows, share_.hidden, share_.vocab_rows);
    work.write_bytes *= 2;
    return cost_of(config, work);
  }

  // Residual stream and its norm, the widest projection and what it was made from.
  int64_t pool_bytes(int64_t rows) override {
    const int64_t q = share_.heads * share_.head_size, kv = share_.kv_heads * share_.head_size;
    return rows * (4 * share_.hidden + std::max(2 * q + 2 * kv, 3 * share_.mlp)) * kElementBytes;
  }

 private:
  template <typename Add>
  void add_columns(int64_t rows, int64_t width, const Add& add) const {
    const int64_t up = (shape_.gated_mlp ? 2 : 1) * width;
    add(product(rows, share_.hidden, up));
    add(elementwise(rows * up, rows * width, 2));
    add(product(rows, width, share_.hidden));
  }

  // A mixture: the rows of a step spread evenly over the experts that they can reach.
  template <typename Add>
  void add_mlp(int64_t rows, const Add& add) const {
    if (share_.shared_mlp > 0) add_columns(rows, share_.shared_mlp, add);
    if (shape_.experts == 0) return add_columns(rows, share_.mlp, add);
    const int64_t visits = rows * shape_.experts_per_token, met = std::min(visits, shape_.experts);
    const int64_t each = (visits + met - 1) / met;
    for (int64_t e = 0; e < met; ++e) add_columns(each, share_.mlp, add);
  }

  ModelShape shape_;
  CardShare share_;
};

}  // namespace

PartCost& PartCost::operator+=(const PartCost& other) {
  ns += other.ns;
  compute_ns += other.compute_ns;
  memory_ns += other.memory_ns;
  read_bytes += other.read_bytes;
  write_bytes += other.write_bytes;
  macs += other.macs;
  return *this;
}

PartCost PartCost::times(int64_t count) const {
  const auto factor = static_cast<double>(count);
  return {ns * factor, compute_ns * factor, memory_ns * factor, read_bytes * count, write_bytes * count, macs * count};
}

PartCost cost_of(const CostConfig& config, const OpWork& work) {
  const device::OpTime time = device::time_of(config, work);
  return {time.total(), time.compute, time.memory, work.read_bytes, work.write_bytes, work.macs};
}

std::unique_ptr<StepParts> parts_from_shape(const ModelShape& shape, const CardShare& share) {
  return std::make_unique<ShapeParts>(shape, share);
}

PartCost encoder_attention_cost(const CostConfig& config, const CardShare& share, int64_t length) {
  return cost_of(config, device::attention_work(length, share.heads, share.kv_heads, share.head_size,
                                                device::round_up(length, kStick), kElementBytes));
}

}  // namespace spyre::sizing
