#include "plugins/spyre/device/dl16_executor.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/vector_math.h"
#include "graph/op_def.h"
#include "plugins/spyre/device/card_executor.h"
#include "plugins/spyre/device/dl16_ops.h"

namespace spyre::device {
namespace {

using graph::Array;

// What a masked score is lowered by: half precision's lowest number, as it crosses to the card.
constexpr double kMasked = -65472;

class Dl16AttentionRow final : public AttentionRow {
 public:
  Dl16AttentionRow(const Dl16Math& math, const graph::Op& op, const CardTables& tables, const CardKv& kv, int64_t d)
      : math_(math),
        tables_(tables),
        kv_(kv),
        d_(d),
        scale_(math.constant(op.float_attr("scale"))),
        cap_(math.constant(op.float_attr("softcap"))),
        masked_(math.constant(kMasked)),
        keys_(tables.t.block_size),
        k_(keys_ * d),
        v_(keys_ * d),
        scores_(keys_) {}

  void run(const RowBlocks& blocks, int64_t kv_head, const float* q, float* y) override {
    std::fill(y, y + d_, 0.0f);
    float most = 0, sum = 0;
    for (size_t b = 0; b < blocks.pages.size(); ++b) {
      load(blocks.pages[b], kv_head);
      score(blocks.masks[b], q);
      float largest = scores_[0];
      for (const float s : scores_) largest = maximum_f32(largest, s);
      if (b > 0) largest = maximum_f32(most, largest);
      const float rescale = b > 0 ? math_.exp(math_.round(most - largest)) : 0;
      for (float& s : scores_) s = math_.exp(math_.round(s - largest));
      const float of_block = math_.sum(scores_);
      sum = b > 0 ? math_.round(math_.round(sum * rescale) + of_block) : of_block;
      for (int64_t i = 0; i < d_; ++i) {
        const float weighted = math_.dot(scores_, v_.data() + i, d_);
        y[i] = b > 0 ? math_.round(math_.round(y[i] * rescale) + weighted) : weighted;
      }
      most = largest;
    }
    if (blocks.pages.empty()) return;
    for (int64_t i = 0; i < d_; ++i) y[i] = math_.round(y[i] / sum);
  }

 private:
  void load(int64_t page, int64_t kv_head) {
    for (int64_t j = 0; j < keys_; ++j) {
      const int64_t slot = page * keys_ + j;
      SPYRE_CHECK(slot >= 0 && slot < kv_.slots(), "page {} of {} slots", page, kv_.slots());
      kv_.load(slot, kv_head, k_.data() + j * d_, v_.data() + j * d_);
    }
  }

  void score(int64_t mask, const float* q) {
    for (int64_t j = 0; j < keys_; ++j) {
      float s = math_.round(math_.dot({q, static_cast<size_t>(d_)}, k_.data() + j * d_) * scale_);
      if (cap_ != 0) s = math_.round(math_.round(tanh_f32(math_.round(s / cap_))) * cap_);
      if (mask >= 0 && tables_.mask(mask, j) != 0) s = math_.round(s + masked_);
      scores_[j] = s;
    }
  }

  const Dl16Math& math_;
  const CardTables& tables_;
  const CardKv& kv_;
  int64_t d_;
  float scale_, cap_, masked_;
  int64_t keys_;  // of a block
  std::vector<float> k_, v_, scores_;
};

class Dl16CardMath final : public CardMath {
 public:
  explicit Dl16CardMath(const Dl16Settings& settings) : math_(settings) {}

  Array evaluate(const CheckedMemory& memory, const DeviceOp& device_op, const graph::Op& op,
                 std::span<const Array* const> inputs, const graph::Type& type) const override {
    return evaluate_dl16(math_, op, inputs, type, placement(memory, device_op, op));
  }

  std::unique_ptr<AttentionRow> attention(const graph::Op& op, const graph::Type& q, const CardTables& tables,
                                          const CardKv& kv) const override {
    return std::make_unique<Dl16AttentionRow>(math_, op, tables, kv, q.extent(2));
  }

 private:
  // Where the elements of the summed dimension lie, and how many of them a core has.
  static Dl16Placement placement(const CheckedMemory& memory, const DeviceOp& device_op, const graph::Op& op) {
    const graph::OpFamily family = op.def->family;
    const bool sums =
        family == graph::OpFamily::kMatmul || family == graph::OpFamily::kReduce || family == graph::OpFamily::kNorm;
    if (!sums) return {};
    const std::vector<Axis>& axes = memory.buffer(device_op.inputs[0]).spec.axes;
    const Axis& axis =
        family == graph::OpFamily::kReduce ? axes.at(static_cast<size_t>(op.int_attr("axis"))) : axes.back();
    Dl16Placement placement{.card = axis.card_indices()};
    int64_t splits = 1;
    if (family == graph::OpFamily::kMatmul && device_op.reduced_dim >= 0) {
      splits = device_op.splits.at(static_cast<size_t>(device_op.reduced_dim));
    }
    placement.per_core = (axis.card() + splits - 1) / splits;
    return placement;
  }

  Dl16Math math_;
};

}  // namespace

void run_dl16(const Launch& launch, std::byte* pool, int64_t live_rows, const attention::StepTables* tables,
              const Dl16Settings& settings) {
  run_card_plan(launch, pool, live_rows, tables, {.dl16 = settings.rules}, Dl16CardMath(settings));
}

}  // namespace spyre::device
