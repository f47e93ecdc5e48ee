#include "plugins/spyre/attention/host_attention.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "plugins/spyre/attention/work_plan.h"
#include "plugins/spyre/kernels/kv_pages.h"

namespace spyre::attention {

using device::at;
using device::HostFrame;
using device::TensorStore;
using kernels::AttendState;
using kernels::KvGroup;

namespace {

// |rows| rows at |floats|: m, l and acc.
AttendState state_at(float* floats, int64_t rows) {
  return {floats, floats + rows, floats + 2 * rows};
}

// The keys and values of one KV head of one sequence, by groups of 64 positions.
class SequenceKeys {
 public:
  SequenceKeys(const StepTables& tables, const TensorStore& store, const kernels::KvPageLayout& layout,
               const WorkItem& item)
      : sequence_(tables.sequences[item.sequence]),
        pages_(reinterpret_cast<const int32_t*>(tables.pages->memory.data())),
        store_(store),
        layout_(layout),
        head_(item.kv_head),
        block_groups_(store.block_size / kernels::kGroupTokens) {}

  KvGroup operator[](int64_t group) const {
    const int64_t block = group / block_groups_ - sequence_.first_block;
    const int32_t id = pages_[sequence_.page_table + block * sequence_.page_stride];
    return layout_.group(page(store_, id), head_, group % block_groups_);
  }

 private:
  const SequencePlan& sequence_;
  const int32_t* pages_;
  const TensorStore& store_;
  const kernels::KvPageLayout& layout_;
  int64_t head_, block_groups_;
};

}  // namespace

// One work item on one thread, in calls of positions_per_call() positions.
class AttentionStep::Item {
 public:
  // |next| is the thread's next item, or null: its first keys are asked for while the last ones of |item| are read.
  Item(const AttentionStep& step, const HostFrame& frame, const WorkItem& item, const WorkItem* next, float* scratch)
      : step_(step),
        frame_(frame),
        tables_(*frame.tables),
        item_(item),
        sequence_(tables_.sequences[item.sequence]),
        store_(*frame.stores[step.state.slot]),
        layout_(page_layout(store_, step.kv_heads, step.head_dim)),
        keys_(tables_, store_, layout_, item),
        group_(step.heads / step.kv_heads),
        scratch_(scratch) {
    if (next != nullptr) after_ = SequenceKeys(tables_, store_, layout_, *next)[first_group(*next)];
  }

  void run() {
    if (item_.join >= 0) return run_part(tables_.joins[item_.join]);
    const int64_t per_call = positions_per_call(group_);
    for (int64_t first = 0; first < item_.rows; first += per_call) {
      set_rows(first, std::min(per_call, item_.rows - first));
      const AttendState total = state_at(scratch_, call_.rows);
      fold(item_.first_range, item_.end_range, total);
      finish(total);
    }
  }

 private:
  void run_part(const WorkJoin& join) {
    SPYRE_CHECK(item_.rows <= positions_per_call(group_) &&
                    state_floats(item_.rows * group_, step_.head_dim) <= join.state_floats,
                "a join of {} rows in {} floats", item_.rows * group_, join.state_floats);
    set_rows(0, item_.rows);
    const auto state = [&](int64_t range) {
      return state_at(tables_.states + join.state + (range - join.first_range) * join.state_floats, call_.rows);
    };
    if (item_.first_range == join.first_range) {
      fold(item_.first_range, item_.end_range, state(join.first_range));
    } else {
      for (int64_t range = item_.first_range; range < item_.end_range; ++range) attend_range(range, state(range));
    }
    // Whoever comes last sees what the others wrote, and leaves the count as the next layer must find it.
    std::atomic<int32_t>& arrivals = tables_.arrivals[item_.join];
    if (arrivals.fetch_add(1, std::memory_order_acq_rel) + 1 < join.parts) return;
    arrivals.store(0, std::memory_order_relaxed);
    const AttendState total = state(join.first_range);
    for (int64_t range = join.folded_end; range < join.end_range; ++range) {
      step_.kernels->merge(total, state(range), call_.rows, step_.head_dim);
    }
    finish(total);
  }

  // The group that holds the first key that |item| reads.
  int64_t first_group(const WorkItem& item) const {
    const SequencePlan& s = tables_.sequences[item.sequence];
    const int64_t key = graph::visible_keys(s.context + item.first_row, s.kv_len, tables_.causal, step_.window).first;
    return std::max<int64_t>(key / kernels::kGroupTokens, item.first_range * kernels::kRangeGroups);
  }

  // Makes the call about |positions| of the item's, from |first| on.
  void set_rows(int64_t first, int64_t positions) {
    int64_t lowest = sequence_.kv_len, highest = 0;
    for (int64_t p = 0; p < positions; ++p) {
      const int64_t position = sequence_.context + item_.first_row + first + p;
      const graph::KeyRange seen = graph::visible_keys(position, sequence_.kv_len, tables_.causal, step_.window);
      visible_[p] = {seen.first, seen.last};
      lowest = std::min(lowest, seen.first);
      highest = std::max(highest, seen.last);
    }
    begin_group_ = lowest / kernels::kGroupTokens;
    end_group_ = (highest + kernels::kGroupTokens - 1) / kernels::kGroupTokens;
    query_row_ = sequence_.first_row + item_.first_row + first;
    const TokenRows& q = step_.q;
    const uint16_t* rows = at<const uint16_t>(frame_, q.place) + query_row_ * q.token_stride;
    call_ = {.q = {rows + item_.kv_head * group_ * q.head_stride, group_, q.head_stride, q.token_stride},
             .rows = positions * group_,
             .head_dim = step_.head_dim,
             .visible = visible_.data(),
             .scale = step_.scale,
             .soft_cap = step_.soft_cap};
  }

  // |total| becomes the state of ranges [first, end): each computed apart and merged behind those before it.
  void fold(int64_t first, int64_t end, const AttendState& total) {
    const AttendState spare = state_at(scratch_ + state_floats(call_.rows, step_.head_dim), call_.rows);
    bool empty = true;
    for (int64_t range = first; range < end; ++range) {
      if (!sees(range)) continue;
      attend_range(range, empty ? total : spare);
      if (!empty) step_.kernels->merge(total, spare, call_.rows, step_.head_dim);
      empty = false;
    }
    if (empty) kernels::attend_reset(total, call_.rows, step_.head_dim);
  }

  bool sees(int64_t range) const {
    return range * kernels::kRangeGroups < end_group_ && (range + 1) * kernels::kRangeGroups > begin_group_;
  }

  void attend_range(int64_t range, const AttendState& state) {
    const int64_t begin = std::max(begin_group_, range * kernels::kRangeGroups);
    const int64_t end = std::min(end_group_, (range + 1) * kernels::kRangeGroups);
    std::array<KvGroup, kernels::kRangeGroups> groups;
    for (int64_t g = begin; g < end; ++g) groups[g - begin] = keys_[g];
    kernels::attend_reset(state, call_.rows, step_.head_dim);
    call_.groups = groups.data();
    call_.ahead = end < end_group_ && range + 1 < item_.end_range ? keys_[end] : after_;
    call_.first_group = begin;
    call_.group_count = end - begin;
    call_.state = state;
    step_.kernels->attend(call_);
  }

  void finish(const AttendState& total) const {
    const TokenRows& out = step_.out;
    uint16_t* rows = at<uint16_t>(frame_, out.place) + query_row_ * out.token_stride;
    step_.kernels->finish(total, call_.rows, step_.head_dim,
                          {rows + item_.kv_head * group_ * out.head_stride, group_, out.head_stride, out.token_stride});
  }

  const AttentionStep& step_;
  const HostFrame& frame_;
  const StepTables& tables_;
  const WorkItem& item_;
  const SequencePlan& sequence_;
  const TensorStore& store_;
  const kernels::KvPageLayout layout_;
  const SequenceKeys keys_;
  const int64_t group_;
  float* const scratch_;  // two states of a call
  KvGroup after_;
  // Of the call in hand.
  kernels::AttendCall call_;
  std::array<kernels::KeyInterval, kMostCallPositions> visible_;
  int64_t begin_group_ = 0, end_group_ = 0, query_row_ = 0;
};

size_t AttentionStep::scratch_bytes() const {
  const int64_t group = heads / kv_heads;
  return static_cast<size_t>(2 * state_floats(positions_per_call(group) * group, head_dim)) * sizeof(float);
}

void AttentionStep::run(const HostFrame& frame, int thread, int threads) const {
  const StepTables& tables = *frame.tables;
  SPYRE_CHECK(static_cast<int>(tables.starts.size()) == threads + 1, "work for {} threads, run by {}",
              tables.starts.size() - 1, threads);
  auto* scratch = reinterpret_cast<float*>(frame.scratch);
  for (int32_t i = tables.starts[thread]; i < tables.starts[thread + 1]; ++i) {
    const WorkItem* next = i + 1 < tables.starts[thread + 1] ? &tables.items[i + 1] : nullptr;
    Item(*this, frame, tables.items[i], next, scratch).run();
  }
}

std::string AttentionStep::describe() const {
  return fmt::format("{} heads={}/{} d={}", kernels->name, heads, kv_heads, head_dim);
}

}  // namespace spyre::attention
