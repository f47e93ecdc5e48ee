// What attention reads on the card: one layer's KV cache in either layout, and the tables of a step. Internal to the
// executors of card plans.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "plugins/spyre/attention/kv_layout.h"
#include "plugins/spyre/attention/step_tables.h"
#include "plugins/spyre/device/checked_memory.h"

namespace spyre::device {

// Keys and values of one layer: two tensors of either layout (attention/kv_layout.h), keys first. Heads of keys and of
// values have one width on the card but may be filled in different ways.
class CardKv {
 public:
  CardKv(TensorStore& store, const TensorSpec& state, const Axis& key, const Axis& value)
      : store_(store),
        placement_(Placement::of(store.spec.layout)),
        head_major_(attention::kv_layout_of(store.spec) == attention::KvLayout::kHeadMajor) {
    const auto& axes = store.spec.axes;
    SPYRE_CHECK(store.card, "a KV store on the host");
    if (axes[1].card() != state.axes[0].card() || axes.back().card() != key.card() ||
        axes.back().card() != value.card()) {
      throw_error(ErrorCode::kUnsupported, "the KV cache has {} heads of {} on the card, the program {} of {} / {}",
                  axes[1].card(), axes.back().card(), state.axes[0].card(), key.card(), value.card());
    }
    slots_ = store.num_blocks * store.block_size;
    heads_ = placement_.steps(1, state.axes[0]);
    const int last = static_cast<int>(axes.size()) - 1;
    key_ = placement_.steps(last, key);
    value_ = placement_.steps(last, value);
  }

  int64_t slots() const { return slots_; }
  bool head_major() const { return head_major_; }
  // Of a head-major cache: one head of one token each.
  int64_t rows() const { return slots_ * store_.spec.axes[1].card(); }

  void store(int64_t slot, int64_t head, const float* k, const float* v) { write(row(slot, head), k, v); }
  // To row |row| of a head-major cache, seen as [blocks * heads * block size, head size].
  void store_row(int64_t row, const float* k, const float* v) {
    const int64_t bs = store_.block_size, heads = store_.spec.axes[1].card();
    write(placement_.step(0, row / bs / heads) + placement_.step(1, row / bs % heads) + placement_.step(2, row % bs), k,
          v);
  }

  void load(int64_t slot, int64_t head, float* k, float* v) const {
    const auto* words = reinterpret_cast<const uint16_t*>(store_.memory.data());
    const int64_t at = row(slot, head);
    for (size_t i = 0; i < key_.size(); ++i) k[i] = load_word(store_, words[at + key_[i]]);
    for (size_t i = 0; i < value_.size(); ++i) v[i] = load_word(store_, words[values() + at + value_[i]]);
  }

 private:
  void write(int64_t at, const float* k, const float* v) {
    auto* words = reinterpret_cast<uint16_t*>(store_.memory.data());
    for (size_t i = 0; i < key_.size(); ++i) words[at + key_[i]] = store_word(store_, k[i]);
    for (size_t i = 0; i < value_.size(); ++i) words[values() + at + value_[i]] = store_word(store_, v[i]);
  }
  int64_t row(int64_t slot, int64_t head) const {
    if (!head_major_) return placement_.step(0, slot) + heads_[head];
    return placement_.step(0, slot / store_.block_size) + heads_[head] + placement_.step(2, slot % store_.block_size);
  }
  int64_t values() const { return store_.spec.layout.device_elements(); }

  TensorStore& store_;
  Placement placement_;
  bool head_major_;
  int64_t slots_ = 0;
  std::vector<int64_t> heads_, key_, value_;
};

// The tables of a step as the card reads them.
class CardTables {
 public:
  explicit CardTables(const attention::StepTables& tables)
      : t(tables),
        rows_(Placement::of(tables.query_rows->spec.layout)),
        pages_(Placement::of(tables.pages->spec.layout)),
        grid_masks_(Placement::of(tables.grid_masks->spec.layout)),
        masks_(Placement::of(tables.masks->spec.layout)) {}

  int64_t query_row(int64_t entry) const { return int_at(*t.query_rows, rows_.step(0, entry)); }
  int64_t page(int64_t entry) const { return int_at(*t.pages, at(pages_, entry)); }
  int64_t grid_mask(int64_t entry) const { return int_at(*t.grid_masks, at(grid_masks_, entry)); }
  float mask(int64_t row, int64_t key) const { return float_at(*t.masks, masks_.step(0, row) + masks_.step(1, key)); }
  // A padding lane is shown its first block with the lowest finite number: what it makes of it is dropped.
  bool visible(int64_t row, int64_t key) const {
    const float value = mask(row, key);
    const bool lowest = t.grid.has_value() && row == attention::kPaddingLane && std::isfinite(value);
    SPYRE_CHECK(value == 0 || lowest || (std::isinf(value) && value < 0), "the mask of row {}, key {} is {}", row, key,
                value);
    return !std::isinf(value);
  }

  const attention::StepTables& t;

 private:
  static int64_t at(const Placement& table, int64_t entry) {
    return table.step(0, entry / attention::kPageRowWidth) + table.step(1, entry % attention::kPageRowWidth);
  }

  Placement rows_, pages_, grid_masks_, masks_;
};

// What one query row attends over: per block a page, and a row of the mask tensor or -1 for all of it.
struct RowBlocks {
  int64_t first_block = 0;
  std::vector<int64_t> pages, masks;
};

}  // namespace spyre::device
