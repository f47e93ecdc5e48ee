#include "plugins/spyre/device/checked_calls.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/vector_math.h"
#include "plugins/spyre/attention/kv_layout.h"

namespace spyre::device {

using graph::Array;

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Keys and values of one layer: two tensors of either layout (attention/kv_layout.h), keys first. Heads of keys and of
// values have one width on the card but may be filled in different ways.
class KvStore {
 public:
  KvStore(TensorStore& store, const TensorSpec& state, const Axis& key, const Axis& value)
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
    for (size_t i = 0; i < key_.size(); ++i) k[i] = load_16bit(store_.spec.dtype, words[at + key_[i]]);
    for (size_t i = 0; i < value_.size(); ++i) {
      v[i] = load_16bit(store_.spec.dtype, words[values() + at + value_[i]]);
    }
  }

 private:
  void write(int64_t at, const float* k, const float* v) {
    auto* words = reinterpret_cast<uint16_t*>(store_.memory.data());
    for (size_t i = 0; i < key_.size(); ++i) words[at + key_[i]] = store_16bit(store_.spec.dtype, k[i]);
    for (size_t i = 0; i < value_.size(); ++i) {
      words[values() + at + value_[i]] = store_16bit(store_.spec.dtype, v[i]);
    }
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

}  // namespace

namespace {

// The step's row tables of a head-major cache, which the card's stores go by; the slots are for the host.
void store_by_rows(KvStore& kv, const Array& k, const Array& v, const attention::StepTables& tables) {
  const int64_t tokens = k.type().extent(0), heads = k.type().extent(1), d = k.type().extent(2);
  SPYRE_CHECK(std::ssize(tables.kv_rows) == heads, "{} row tables for {} heads", tables.kv_rows.size(), heads);
  for (int64_t h = 0; h < heads; ++h) {
    const Placement placement = Placement::of(tables.kv_rows[h]->spec.layout);
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t row = int_at(*tables.kv_rows[h], placement.step(0, t)), at = (t * heads + h) * d;
      if (row == -1) continue;
      if (row < -1 || row >= kv.rows()) {
        throw_error(ErrorCode::kInvalidArgument, "kv_store: row {} of token {}, head {} is outside {} rows", row, t, h,
                    kv.rows());
      }
      kv.store_row(row, k.floats().data() + at, v.floats().data() + at);
    }
  }
}

}  // namespace

void checked_kv_store(const CheckedMemory& memory, const DeviceOp& op, const attention::StepTables* tables) {
  const int32_t state = op.inputs[0];
  const Array k = memory.read(op.inputs[1]), v = memory.read(op.inputs[2]), slots = memory.read(op.inputs[3]);
  KvStore kv(memory.state(state), memory.buffer(state).spec, memory.buffer(op.inputs[1]).spec.axes[2],
             memory.buffer(op.inputs[2]).spec.axes[2]);
  if (kv.head_major()) {
    SPYRE_CHECK(tables != nullptr, "a head-major store without step tables");
    return store_by_rows(kv, k, v, *tables);
  }
  const int64_t heads = k.type().extent(1), d = k.type().extent(2);
  for (int64_t t = 0; t < slots.elements(); ++t) {
    const int32_t slot = slots.ints()[t];
    if (slot == -1) continue;
    if (slot < -1 || slot >= kv.slots()) {
      throw_error(ErrorCode::kInvalidArgument, "kv_store: slot {} of token {} is outside {} slots", slot, t,
                  kv.slots());
    }
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t at = (t * heads + h) * d;
      kv.store(slot, h, k.floats().data() + at, v.floats().data() + at);
    }
  }
}

namespace {

// The tables of a step as the card reads them.
class Tables {
 public:
  explicit Tables(const attention::StepTables& tables)
      : t(tables),
        rows_(Placement::of(tables.query_rows->spec.layout)),
        pages_(Placement::of(tables.pages->spec.layout)),
        grid_masks_(Placement::of(tables.grid_masks->spec.layout)),
        masks_(Placement::of(tables.masks->spec.layout)) {}

  int64_t query_row(int64_t entry) const { return int_at(*t.query_rows, rows_.step(0, entry)); }
  int64_t page(int64_t entry) const { return int_at(*t.pages, at(pages_, entry)); }
  int64_t grid_mask(int64_t entry) const { return int_at(*t.grid_masks, at(grid_masks_, entry)); }
  // A padding lane is shown its first block with the lowest finite number: what it makes of it is dropped.
  bool visible(int64_t row, int64_t key) const {
    const float mask = float_at(*t.masks, masks_.step(0, row) + masks_.step(1, key));
    const bool lowest = t.grid.has_value() && row == attention::kPaddingLane && std::isfinite(mask);
    SPYRE_CHECK(mask == 0 || lowest || (std::isinf(mask) && mask < 0), "the mask of row {}, key {} is {}", row, key,
                mask);
    return !std::isinf(mask);
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

// One query row of one head against the blocks that its program reads.
class RowAttention {
 public:
  RowAttention(const AttentionMath& math, const Tables& tables, const KvStore& kv, int64_t d)
      : math_(math), tables_(tables), kv_(kv), d_(d), k_(kAttentionStep * d), v_(kAttentionStep * d) {}

  void run(const RowBlocks& blocks, int64_t kv_head, const float* q, float* y) {
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

  const AttentionMath& math_;
  const Tables& tables_;
  const KvStore& kv_;
  int64_t d_;
  std::vector<float> k_, v_;
};

// Row |row| of a sequence that has a program of its own.
RowBlocks blocks_of(const Tables& at, const attention::SequencePlan& s, int64_t row) {
  RowBlocks blocks{.first_block = s.first_block};
  for (int64_t b = 0; b < s.blocks; ++b) {
    const int64_t tile = at.t.tiles[s.tile_table + b];
    blocks.pages.push_back(at.page(s.page_table + b * s.page_stride));
    blocks.masks.push_back(tile < 0 ? -1 : tile + row);
  }
  return blocks;
}

// Lane |lane| of a batched decode: every block of the grid, as the tables have it.
RowBlocks blocks_of_lane(const Tables& at, int64_t lane) {
  const attention::Variant& grid = *at.t.grid;
  const int64_t width = round_up(grid.sequences, attention::kPageRowWidth);
  RowBlocks blocks;
  if (lane < std::ssize(at.t.sequences)) blocks.first_block = at.t.sequences[lane].first_block;
  for (int64_t b = 0; b < grid.blocks; ++b) {
    blocks.pages.push_back(at.page(b * width + lane));
    blocks.masks.push_back(at.grid_mask(b * width + lane));
  }
  return blocks;
}

}  // namespace

void checked_attention(const CheckedMemory& memory, const graph::Op& graph_op, const DeviceOp& op,
                       const attention::StepTables* tables, DotOrder bf16_order) {
  SPYRE_CHECK(tables != nullptr, "attention without step tables");
  if (tables->block_size % 64 != 0) refuse(Rule::kBlockSize, fmt::format("blocks hold {} tokens", tables->block_size));
  const int32_t q_buffer = op.inputs[0], state = op.inputs[1], out_buffer = op.outputs[0];
  const Array q = memory.read(q_buffer);
  const graph::Type& type = q.type();
  const int64_t rows = type.extent(0), heads = type.extent(1), d = type.extent(2);
  const KvStore kv(memory.state(state), memory.buffer(state).spec, memory.buffer(q_buffer).spec.axes[2],
                   memory.buffer(out_buffer).spec.axes[2]);
  const int64_t group = heads / memory.buffer(state).spec.axes[0].logical();
  AttentionMath math;
  math.dtype = type.dtype;
  math.order = type.dtype == DType::kBF16 ? bf16_order : DotOrder::kSequential;
  math.scale = static_cast<float>(graph_op.float_attr("scale"));
  math.soft_cap = static_cast<float>(graph_op.float_attr("softcap"));
  const Tables at(*tables);
  RowAttention attend(math, at, kv, d);
  Array out = Array::zeros(type);  // live rows of no sequence give 0
  const auto run_row = [&](int64_t query_entry, const RowBlocks& blocks, float* result) {
    const int64_t row = at.query_row(query_entry);
    SPYRE_CHECK(row >= 0 && row < rows, "query row {} of {}", row, rows);
    float* y = result != nullptr ? result : out.mutable_floats().data() + row * heads * d;
    for (int64_t h = 0; h < heads; ++h) {
      attend.run(blocks, h / group, q.floats().data() + (row * heads + h) * d, y + h * d);
    }
  };
  if (tables->grid.has_value()) {
    std::vector<float> dropped(static_cast<size_t>(heads * d));  // of padding lanes
    for (int64_t lane = 0; lane < tables->grid->sequences; ++lane) {
      run_row(lane, blocks_of_lane(at, lane), lane < std::ssize(tables->sequences) ? nullptr : dropped.data());
    }
  } else {
    for (const attention::SequencePlan& s : tables->sequences) {
      for (int64_t i = 0; i < s.query_len; ++i) run_row(s.query_table + i, blocks_of(at, s, i), nullptr);
    }
  }
  memory.write(out_buffer, out);
}

}  // namespace spyre::device
