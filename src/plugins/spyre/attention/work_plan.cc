#include "plugins/spyre/attention/work_plan.h"

#include <algorithm>
#include <numeric>

#include "plugins/spyre/kernels/attention.h"

namespace spyre::attention {
namespace {

constexpr int64_t kTileRows = 6;
constexpr int64_t kRangeTokens = kernels::kGroupTokens * kernels::kRangeGroups;
// Units of at most so many query rows are divided by ranges: reading their keys takes longer than the arithmetic.
constexpr int64_t kFewRows = 16;
// Reading a key and its value takes about as long as the arithmetic of so many query rows on them (Zen 4, two threads:
// 256 bytes from memory 15 ns, a row of 64 elements 2-4 ns).
constexpr int64_t kReadCost = 4;
// A cut moves to the end of a unit that is nearer than this part of a thread's share.
constexpr int64_t kSlack = 32;
constexpr int64_t kStateLimitFloats = int64_t{16} << 20;  // 64 MiB of addresses; beyond them units stay whole

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

int64_t positions_per_call(int64_t group) {
  const int64_t most = std::max<int64_t>(1, kMostCallPositions / group);
  const int64_t whole_tiles = kTileRows / std::gcd(kTileRows, group);
  return most < whole_tiles ? most : most / whole_tiles * whole_tiles;
}

int64_t state_floats(int64_t rows, int64_t head_dim) {
  return ceil_div(rows * (2 + kernels::attend_stride(head_dim)), 16) * 16;
}

WorkPlan::WorkPlan(const WorkOptions& options) : options_(options), split_rows_(std::max(kFewRows, options.group)) {
  // An item is a whole number of calls, about 64 positions: coarse enough that a group of keys is read for many rows.
  const int64_t per_call = positions_per_call(options.group);
  positions_per_item_ = std::max<int64_t>(1, 64 / per_call) * per_call;

  const auto threads = static_cast<int64_t>(options.threads);
  const int64_t seqs = std::max<int64_t>(1, std::min(options.max_num_seqs, options.max_num_batched_tokens));
  const int64_t units = options.kv_heads * (seqs + options.max_num_batched_tokens / positions_per_item_);
  units_.reserve(static_cast<size_t>(units));
  items_.reserve(static_cast<size_t>(units + threads));
  starts_.reserve(static_cast<size_t>(threads) + 1);
  joins_.reserve(static_cast<size_t>(threads));
  arrivals_ = std::make_unique<std::atomic<int32_t>[]>(static_cast<size_t>(threads));
  if (options.head_dim == 0) return;
  // A thread's stretch begins with at most one part that is not the first of its unit, of at most all ranges; and each
  // divided unit has a state for its first part.
  const int64_t ranges = ceil_div(options.max_model_len, kRangeTokens);
  states_capacity_ =
      std::min(kStateLimitFloats, (threads - 1) * (ranges + 1) * state_floats(split_rows_, options.head_dim));
  states_ = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(states_capacity_ + 16));
  void* at = states_.get();
  size_t space = static_cast<size_t>(states_capacity_ + 16) * sizeof(float);
  states_at_ = static_cast<float*>(std::align(64, 1, at, space));
}

void WorkPlan::build(std::span<const SequencePlan> sequences, bool causal) {
  units_.clear();
  items_.clear();
  joins_.clear();
  starts_.assign(1, 0);
  total_ = at_ = states_used_ = 0;
  for (size_t i = 0; i < sequences.size(); ++i) list_units(sequences[i], static_cast<int32_t>(i), causal);
  for (const Unit& unit : units_) total_ += unit.cost;
  for (const Unit& unit : units_) lay_out(unit, sequences, causal);
  while (std::ssize(starts_) <= options_.threads) starts_.push_back(static_cast<int32_t>(items_.size()));
  // A step that threw may have left some behind.
  for (int t = 0; t < options_.threads; ++t) arrivals_[static_cast<size_t>(t)].store(0, std::memory_order_relaxed);
}

void WorkPlan::describe(StepTables& tables) {
  tables.items = items_;
  tables.starts = starts_;
  tables.joins = joins_;
  tables.arrivals = arrivals_.get();
  tables.states = states_at_;
}

// Pairs of a query row and a key it sees, over |count| positions from the sequence's row |first|.
int64_t WorkPlan::pairs(const SequencePlan& s, int64_t first, int64_t count, bool causal) const {
  int64_t sum = 0;
  for (int64_t row = first; row < first + count; ++row) {
    const graph::KeyRange keys = graph::visible_keys(s.context + row, s.kv_len, causal, options_.window);
    sum += keys.last - keys.first;
  }
  return sum * options_.group;
}

void WorkPlan::list_units(const SequencePlan& s, int32_t index, bool causal) {
  const size_t first_unit = units_.size();
  for (int64_t row = 0; row < s.query_len; row += positions_per_item_) {
    const int64_t rows = std::min(positions_per_item_, s.query_len - row);
    Unit unit;
    // The first row sees furthest back, the last one furthest ahead.
    unit.keys_begin = graph::visible_keys(s.context + row, s.kv_len, causal, options_.window).first;
    unit.keys_end = graph::visible_keys(s.context + row + rows - 1, s.kv_len, causal, options_.window).last;
    unit.item = {.sequence = index,
                 .kv_head = 0,
                 .first_row = static_cast<int32_t>(row),
                 .rows = static_cast<int32_t>(rows),
                 .first_range = static_cast<int32_t>(unit.keys_begin / kRangeTokens),
                 .end_range = static_cast<int32_t>(ceil_div(unit.keys_end, kRangeTokens))};
    unit.by_ranges = rows * options_.group <= split_rows_ && rows <= positions_per_call(options_.group);
    unit.begin = unit.by_ranges ? unit.item.first_range : row;
    unit.end = unit.by_ranges ? unit.item.end_range : row + rows;
    unit.cost = (unit.keys_end - unit.keys_begin) * kReadCost + pairs(s, row, rows, causal);
    units_.push_back(unit);
  }
  // The other heads cost the same. Units of one head stand together: they read the same keys.
  const size_t blocks = units_.size() - first_unit;
  for (int64_t head = 1; head < options_.kv_heads; ++head) {
    for (size_t b = 0; b < blocks; ++b) {
      Unit unit = units_[first_unit + b];
      unit.item.kv_head = static_cast<int32_t>(head);
      units_.push_back(unit);
    }
  }
}

// Deals out one unit, cutting it where the stretch of a thread ends in it.
void WorkPlan::lay_out(Unit unit, std::span<const SequencePlan> sequences, bool causal) {
  const int64_t begin = at_;
  at_ += unit.cost;
  join_ = -1;
  int64_t done = unit.begin;
  while (std::ssize(starts_) < options_.threads) {
    const int64_t boundary = total_ * std::ssize(starts_) / options_.threads;
    if (boundary >= at_) break;
    int64_t cut = std::max(done, nearest_cut(unit, boundary - begin, sequences, causal));
    const bool inside = unit.begin < cut && cut < unit.end;
    if (inside && unit.by_ranges && join_ < 0 && !open_join(unit)) {
      cut = boundary - begin < unit.cost / 2 ? unit.begin : unit.end;
    }
    if (cut > done) emit(unit, done, cut);
    done = cut;
    starts_.push_back(static_cast<int32_t>(items_.size()));
  }
  if (done < unit.end) emit(unit, done, unit.end);
}

// Where to cut |unit|, |offset| of its cost behind its begin.
int64_t WorkPlan::nearest_cut(const Unit& unit, int64_t offset, std::span<const SequencePlan> sequences,
                              bool causal) const {
  const int64_t slack = total_ / options_.threads / kSlack;
  if (offset <= slack) return unit.begin;
  if (unit.cost - offset <= slack) return unit.end;
  if (unit.by_ranges) {
    const int64_t key = unit.keys_begin + (unit.keys_end - unit.keys_begin) * offset / unit.cost;
    return std::clamp((key + kRangeTokens / 2) / kRangeTokens, unit.begin, unit.end);
  }
  // Whole register tiles of rows stay together.
  const int64_t step = kTileRows / std::gcd(kTileRows, options_.group);
  const SequencePlan& s = sequences[static_cast<size_t>(unit.item.sequence)];
  int64_t cost = 0;
  for (int64_t row = unit.begin; row < unit.end; row += step) {
    const int64_t more = pairs(s, row, std::min(step, unit.end - row), causal);
    if (cost + more / 2 >= offset) return row;
    cost += more;
  }
  return unit.end;
}

// Takes the states of a unit that is being divided: one for each range, as nobody knows yet where its first part ends.
bool WorkPlan::open_join(const Unit& unit) {
  const int64_t floats = state_floats(unit.item.rows * options_.group, options_.head_dim);
  const int64_t ranges = unit.end - unit.begin;
  if (states_used_ + ranges * floats > states_capacity_) return false;
  join_ = static_cast<int32_t>(joins_.size());
  joins_.push_back({.state = states_used_, .state_floats = floats, .first_range = static_cast<int32_t>(unit.begin)});
  states_used_ += ranges * floats;
  return true;
}

void WorkPlan::emit(const Unit& unit, int64_t begin, int64_t end) {
  WorkItem item = unit.item;
  item.join = join_;
  if (unit.by_ranges) {
    item.first_range = static_cast<int32_t>(begin);
    item.end_range = static_cast<int32_t>(end);
  } else {
    item.first_row = static_cast<int32_t>(begin);
    item.rows = static_cast<int32_t>(end - begin);
  }
  if (join_ >= 0) {
    WorkJoin& join = joins_[static_cast<size_t>(join_)];
    if (join.parts++ == 0) join.folded_end = item.end_range;
    join.end_range = item.end_range;
  }
  items_.push_back(item);
}

}  // namespace spyre::attention
