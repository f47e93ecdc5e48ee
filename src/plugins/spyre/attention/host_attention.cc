#include "plugins/spyre/attention/host_attention.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "plugins/spyre/kernels/kv_pages.h"

namespace spyre::attention {

using device::at;
using device::HostFrame;
using device::TensorStore;

namespace {

// Rows of one kernel call and the range state each needs.
constexpr int64_t kRowsPerCall = 64;

// The keys and values of one work item, by groups of 64 positions.
class ItemKeys {
 public:
  ItemKeys(const StepTables& tables, const TensorStore& store, const kernels::KvPageLayout& layout,
           const WorkItem& item)
      : tables_(tables),
        sequence_(tables.sequences[item.sequence]),
        pages_(reinterpret_cast<const int32_t*>(tables.pages->memory.data())),
        store_(store),
        layout_(layout),
        head_(item.kv_head),
        first_row_(item.first_row),
        block_groups_(store.block_size / kernels::kGroupTokens) {}

  kernels::KvGroup operator[](int64_t group) const {
    const int64_t block = group / block_groups_ - sequence_.first_block;
    const int32_t id = pages_[sequence_.page_table + block * sequence_.page_stride];
    return layout_.group(page(store_, id), head_, group % block_groups_);
  }

  // The group that holds the first key that the item's rows see.
  kernels::KvGroup first(int64_t window) const {
    const int64_t position = sequence_.context + first_row_;
    const int64_t key = graph::visible_keys(position, sequence_.kv_len, tables_.causal, window).first;
    return (*this)[key / kernels::kGroupTokens];
  }

 private:
  const StepTables& tables_;
  const SequencePlan& sequence_;
  const int32_t* pages_;
  const TensorStore& store_;
  const kernels::KvPageLayout& layout_;
  int64_t head_, first_row_, block_groups_;
};

}  // namespace

int64_t AttentionStep::positions_per_call() const {
  return std::max<int64_t>(1, kRowsPerCall / (heads / kv_heads));
}

size_t AttentionStep::scratch_bytes() const {
  const int64_t rows = positions_per_call() * (heads / kv_heads);
  return static_cast<size_t>(2 * rows * (2 + kernels::attend_stride(head_dim))) * sizeof(float);
}

void AttentionStep::run(const HostFrame& frame, int thread, int threads) const {
  const StepTables& tables = *frame.tables;
  SPYRE_CHECK(static_cast<int>(tables.starts.size()) == threads + 1, "work for {} threads, run by {}",
              tables.starts.size() - 1, threads);
  for (int32_t i = tables.starts[thread]; i < tables.starts[thread + 1]; ++i) {
    const WorkItem* next = i + 1 < tables.starts[thread + 1] ? &tables.items[i + 1] : nullptr;
    attend(frame, tables.items[i], next, frame.scratch[thread]);
  }
}

// One item: rows (positions) of one KV head of one sequence, in calls of positions_per_call() positions; for each,
// ranges of 512 keys in ascending order, each computed apart and merged.
void AttentionStep::attend(const HostFrame& frame, const WorkItem& item, const WorkItem* next,
                           std::byte* scratch) const {
  const StepTables& tables = *frame.tables;
  const SequencePlan& sequence = tables.sequences[item.sequence];
  const TensorStore& store = *frame.stores[state.slot];
  const kernels::KvPageLayout layout = page_layout(store, kv_heads, head_dim);
  const ItemKeys keys(tables, store, layout, item);
  const kernels::KvGroup after_item =
      next != nullptr ? ItemKeys(tables, store, layout, *next).first(window) : kernels::KvGroup{};
  const int64_t group = heads / kv_heads, stride = kernels::attend_stride(head_dim);

  for (int64_t first = 0; first < item.rows; first += positions_per_call()) {
    const int64_t positions = std::min<int64_t>(positions_per_call(), item.rows - first);
    const int64_t rows = positions * group;
    auto* floats = reinterpret_cast<float*>(scratch);
    const kernels::AttendState total{floats, floats + rows, floats + 2 * rows};
    floats += rows * (2 + stride);
    const kernels::AttendState part{floats, floats + rows, floats + 2 * rows};

    std::array<kernels::KeyInterval, kRowsPerCall> visible;
    int64_t lowest = sequence.kv_len, highest = 0;
    for (int64_t p = 0; p < positions; ++p) {
      const int64_t position = sequence.context + item.first_row + first + p;
      const graph::KeyRange seen = graph::visible_keys(position, sequence.kv_len, tables.causal, window);
      visible[p] = {seen.first, seen.last};
      lowest = std::min(lowest, seen.first);
      highest = std::max(highest, seen.last);
    }
    const int64_t query_row = sequence.first_row + item.first_row + first;
    kernels::AttendCall call{
        .q = {at<const uint16_t>(frame, q.place) + query_row * q.token_stride + item.kv_head * group * q.head_stride,
              group, q.head_stride, q.token_stride},
        .rows = rows,
        .head_dim = head_dim,
        .visible = visible.data(),
        .scale = scale,
        .soft_cap = soft_cap};

    kernels::attend_reset(total, rows, head_dim);
    bool empty = true;
    const int64_t first_group = lowest / kernels::kGroupTokens;
    const int64_t last_group = (highest + kernels::kGroupTokens - 1) / kernels::kGroupTokens;
    for (int64_t range = first_group / kernels::kRangeGroups; range * kernels::kRangeGroups < last_group; ++range) {
      const int64_t begin = std::max(first_group, range * kernels::kRangeGroups);
      const int64_t end = std::min(last_group, (range + 1) * kernels::kRangeGroups);
      std::array<kernels::KvGroup, kernels::kRangeGroups> groups;
      for (int64_t g = begin; g < end; ++g) groups[g - begin] = keys[g];
      call.groups = groups.data();
      call.ahead = end < last_group ? keys[end] : after_item;
      call.first_group = begin;
      call.group_count = end - begin;
      call.state = empty ? total : part;
      if (!empty) kernels::attend_reset(part, rows, head_dim);
      kernels->attend(call);
      if (!empty) kernels->merge(total, part, rows, head_dim);
      empty = false;
    }
    kernels->finish(
        total, rows, head_dim,
        {at<uint16_t>(frame, out.place) + query_row * out.token_stride + item.kv_head * group * out.head_stride, group,
         out.head_stride, out.token_stride});
  }
}

std::string AttentionStep::describe() const {
  return fmt::format("{} heads={}/{} d={}", kernels->name, heads, kv_heads, head_dim);
}

}  // namespace spyre::attention
