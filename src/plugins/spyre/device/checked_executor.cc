#include "plugins/spyre/device/checked_executor.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/vector_math.h"
#include "graph/op_def.h"
#include "plugins/spyre/device/card_executor.h"

namespace spyre::device {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// One query row of one head against the blocks that its program reads.
class ExactAttentionRow final : public AttentionRow {
 public:
  ExactAttentionRow(const AttentionMath& math, const CardTables& tables, const CardKv& kv, int64_t d)
      : math_(math), tables_(tables), kv_(kv), d_(d), k_(kAttentionStep * d), v_(kAttentionStep * d) {}

  void run(const RowBlocks& blocks, int64_t kv_head, const float* q, float* y) override {
    AttentionState total, range;
    std::vector<float> total_acc(d_, 0.0f), acc(d_, 0.0f);
    const int64_t bs = tables_.t.block_size, begin = blocks.first_block * bs;
    const int64_t end = begin + std::ssize(blocks.pages) * bs;
    for (int64_t step = begin; step < end; step += kAttentionStep) {
      if (step % kAttentionRange == 0) {
        attend_merge(total, total_acc.data(), range, acc.data(), d_);
        range = {};
        std::fill(acc.begin(), acc.end(), 0.0f);
      }
      const auto [lo, hi] = load_step(blocks, kv_head, step);
      attend_step(math_, q, d_, k_.data(), d_, v_.data(), d_, lo, hi, range, acc.data());
    }
    attend_merge(total, total_acc.data(), range, acc.data(), d_);
    for (int64_t i = 0; i < d_; ++i) y[i] = total.l == 0 ? 0.0f : round_to(math_.dtype, total_acc[i] / total.l);
  }

 private:
  // The visible keys of 64 at absolute position |step|, which are one run; what is not visible is not read.
  std::pair<int64_t, int64_t> load_step(const RowBlocks& blocks, int64_t kv_head, int64_t step) {
    const int64_t bs = tables_.t.block_size, block = step / bs - blocks.first_block, first_key = step % bs;
    const int64_t mask = blocks.masks[block], page = blocks.pages[block];
    std::fill(k_.begin(), k_.end(), kNaN);
    std::fill(v_.begin(), v_.end(), kNaN);
    int64_t lo = kAttentionStep, hi = 0, count = 0;
    for (int64_t j = 0; j < kAttentionStep; ++j) {
      if (mask >= 0 && !tables_.visible(mask, first_key + j)) continue;
      lo = std::min(lo, j);
      hi = j + 1;
      ++count;
      const int64_t slot = page * bs + first_key + j;
      SPYRE_CHECK(slot >= 0 && slot < kv_.slots(), "page {} of {} slots", page, kv_.slots());
      kv_.load(slot, kv_head, k_.data() + j * d_, v_.data() + j * d_);
    }
    SPYRE_CHECK(count == std::max<int64_t>(hi - lo, 0), "the mask at key {} has holes", step);
    return {lo, hi};
  }

  AttentionMath math_;
  const CardTables& tables_;
  const CardKv& kv_;
  int64_t d_;
  std::vector<float> k_, v_;
};

// What the exact interpreter computes.
class ExactMath final : public CardMath {
 public:
  explicit ExactMath(DotOrder bf16_order) : bf16_order_(bf16_order) {}

  graph::Array evaluate(const CheckedMemory&, const DeviceOp&, const graph::Op& op,
                        std::span<const graph::Array* const> inputs, const graph::Type& type) const override {
    const std::vector<graph::KvPages*> states(inputs.size(), nullptr);
    const std::vector<graph::Type> types{type};
    graph::EvalContext context{op, inputs, states, nullptr, types, {}, graph::EvalMode::kExact, bf16_order_};
    op.def->evaluate(context);
    return std::move(context.outputs.at(0));
  }

  std::unique_ptr<AttentionRow> attention(const graph::Op& op, const graph::Type& q, const CardTables& tables,
                                          const CardKv& kv) const override {
    AttentionMath math;
    math.dtype = q.dtype;
    math.order = q.dtype == DType::kBF16 ? bf16_order_ : DotOrder::kSequential;
    math.scale = static_cast<float>(op.float_attr("scale"));
    math.soft_cap = static_cast<float>(op.float_attr("softcap"));
    return std::make_unique<ExactAttentionRow>(math, tables, kv, q.extent(2));
  }

 private:
  DotOrder bf16_order_;
};

}  // namespace

void run_checked(const Launch& launch, std::byte* pool, int64_t live_rows, const attention::StepTables* tables,
                 DotOrder bf16_order) {
  run_card_plan(launch, pool, live_rows, tables, {}, ExactMath(bf16_order));
}

}  // namespace spyre::device
