#include "plugins/spyre/attention/metadata_builder.h"

#include <algorithm>

#include "base/error.h"

namespace spyre::attention {
namespace {

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

struct MaskWords {
  uint16_t none;    // -infinity
  uint16_t lowest;  // the lowest finite number
};
MaskWords mask_words(DType dtype) {
  return dtype == DType::kBF16 ? MaskWords{0xff80, 0xff7f} : MaskWords{0xfc00, 0xfbff};
}

}  // namespace

// Sizes: sequences * largest bucket would be safe but absurd. Chunks share the step's token budget, and each is padded
// by less than one step of the ladder. Tables grow only here.
MetadataBuilder::MetadataBuilder(device::SoftwareDevice& device, const Bucketer& bucketer,
                                 const BuilderOptions& options)
    : device_(device),
      bucketer_(bucketer),
      options_(options),
      work_({.threads = device.options().threads,
             .kv_heads = options.kv_heads,
             .group = options.group,
             .head_dim = options.head_dim,
             .window = options.window,
             .max_model_len = options.max_model_len,
             .max_num_batched_tokens = options.max_num_batched_tokens,
             .max_num_seqs = options.max_num_seqs}) {
  const int64_t blocks = bucketer.block_ladder().back();
  // k chunks share the budget B; each rounds up by less than the widest gap of the ladder.
  const std::vector<int64_t>& ladder = bucketer.query_ladder();
  int64_t gap = ladder.front() - 1;
  for (size_t i = 1; i < ladder.size(); ++i) gap = std::max(gap, ladder[i] - ladder[i - 1] - 1);
  const int64_t chunks = std::min(options.max_num_seqs, options.max_num_batched_tokens);
  query_capacity_ = options.max_num_batched_tokens + chunks * gap;
  page_capacity_ = options.max_num_seqs * blocks;
  // A chunk of q rows has at most ceil(q / bs) + 2 blocks with a tile of their own (the diagonal and the last), and as
  // many again that a window cuts; each tile has at most q + gap rows. That is at most (q + gap) (q / bs + 3), which is
  // convex in q: over chunks that share the budget, its sum is largest when one has nearly all of it and the others one
  // row each. A short cache has fewer blocks than that.
  const int64_t budget = options.max_num_batched_tokens, bs = options.block_size, sides = options.window > 0 ? 2 : 1;
  const int64_t by_chunks = sides * ((budget + gap) * (budget / bs + 4) + (chunks - 1) * (1 + gap) * 4);
  // A batched decode has a row per lane and side instead.
  mask_capacity_ = std::max(std::min(by_chunks, query_capacity_ * blocks), kFirstOwn + sides * chunks);
  using device::Axis;
  using device::TensorSpec;
  tables_.query_rows = device_.allocate(TensorSpec::plain(DType::kI32, {query_capacity_}), "tables");
  tables_.pages = device_.allocate(TensorSpec::plain(DType::kI32, {page_capacity_, kPageRowWidth}), "tables");
  const int64_t lanes = bucketer.sequence_ladder().empty() ? 0 : bucketer.sequence_ladder().back();
  grid_capacity_ = std::max<int64_t>(1, blocks * ceil_div(lanes, kPageRowWidth));
  tables_.grid_masks = device_.allocate(TensorSpec::plain(DType::kI32, {grid_capacity_, kPageRowWidth}), "tables");
  tables_.masks = device_.allocate(TensorSpec::plain(options.dtype, {mask_capacity_, options.block_size}), "tables");
  if (options.kv_layout == KvLayout::kTokenMajor) return;
  for (int64_t head = 0; head < options.kv_heads; ++head) {
    kv_rows_.push_back(device_.allocate(TensorSpec::plain(DType::kI32, {options.max_num_batched_tokens}), "tables"));
  }
  tables_.kv_rows = kv_rows_;
}

const StepTables& MetadataBuilder::build(const graph::AttentionBatch& batch, std::span<const int32_t> slots) {
  SPYRE_CHECK(batch.block_size == options_.block_size, "block size {}", batch.block_size);
  sequences_.clear();
  tiles_.clear();
  query_rows_.clear();
  pages_.clear();
  grid_masks_.clear();
  masks_.clear();
  query_entries_ = mask_rows_ = 0;
  for (int64_t i = 0; i < batch.sequences(); ++i) sequences_.push_back(active_blocks(batch, i));
  tables_.grid = grid_of(batch);
  if (tables_.grid.has_value()) {
    plan_grid(batch, *tables_.grid);
  } else {
    for (int64_t i = 0; i < batch.sequences(); ++i) plan_sequence(batch, i);
  }
  move_tables();
  if (!kv_rows_.empty()) move_kv_rows(slots);
  work_.build(sequences_, batch.causal);
  tables_.block_size = options_.block_size;
  tables_.causal = batch.causal;
  tables_.sequences = sequences_;
  tables_.tiles = tiles_;
  work_.describe(tables_);
  return tables_;
}

// Which blocks of the sequence any row can see.
SequencePlan MetadataBuilder::active_blocks(const graph::AttentionBatch& batch, int64_t index) const {
  SequencePlan s;
  s.first_row = batch.query_start[index];
  s.query_len = batch.query_start[index + 1] - batch.query_start[index];
  s.kv_len = batch.seq_lens[index];
  s.context = batch.context(index);
  // The earliest row sees furthest back.
  if (options_.window > 0) {
    s.first_block = std::max<int64_t>(0, s.context - options_.window + 1) / options_.block_size;
  }
  s.blocks = ceil_div(s.kv_len, options_.block_size) - s.first_block;
  return s;
}

// Whether every row of the sequence sees all of |block|. The last block counts as seen in part, full or not.
bool MetadataBuilder::sees_all(const SequencePlan& s, int64_t block, bool causal) const {
  const int64_t bs = options_.block_size;
  // The first row sees the least at the end, the last row the least at the beginning.
  const int64_t from = graph::visible_keys(s.kv_len - 1, s.kv_len, causal, options_.window).first;
  const int64_t to = graph::visible_keys(s.context, s.kv_len, causal, options_.window).last;
  return block * bs >= from && (block + 1) * bs <= to && block + 1 < s.first_block + s.blocks;
}

// The tables of a sequence with a program of its own.
void MetadataBuilder::plan_sequence(const graph::AttentionBatch& batch, int64_t index) {
  SequencePlan& s = sequences_[index];
  s.variant = bucketer_.variant(s.query_len, s.blocks);
  s.query_table = query_entries_;
  s.page_table = std::ssize(pages_);
  s.page_stride = kPageRowWidth;
  s.tile_table = std::ssize(tiles_);
  query_entries_ += s.variant.query;
  for (int64_t i = 0; options_.card_tables && i < s.variant.query; ++i) {
    query_rows_.push_back(static_cast<int32_t>(s.first_row + std::min(i, s.query_len - 1)));
  }
  const std::span<const int32_t> table = batch.blocks(index);
  pages_.resize(pages_.size() + static_cast<size_t>(s.blocks * kPageRowWidth), 0);
  for (int64_t b = 0; b < s.blocks; ++b) {
    const int64_t block = s.first_block + b;
    pages_[s.page_table + b * s.page_stride] = table[block];
    const bool own_tile = !sees_all(s, block, batch.causal);
    tiles_.push_back(own_tile ? mask_rows_ : -1);
    if (own_tile) write_tile(s, block, batch.causal);
  }
}

// [padded query rows, block_size]: 0 where the row may see the key, -inf elsewhere. Padded rows are those of the last
// real row.
void MetadataBuilder::write_tile(const SequencePlan& s, int64_t block, bool causal) {
  uint16_t* rows = add_mask_rows(s.variant.query);
  if (rows == nullptr) return;
  for (int64_t i = 0; i < s.variant.query; ++i) {
    write_row(s, s.context + std::min(i, s.query_len - 1), block, causal, rows + i * options_.block_size);
  }
}

void MetadataBuilder::write_row(const SequencePlan& s, int64_t position, int64_t block, bool causal,
                                uint16_t* row) const {
  const int64_t bs = options_.block_size, first_key = block * bs;
  const graph::KeyRange keys = graph::visible_keys(position, s.kv_len, causal, options_.window);
  const int64_t from = std::clamp<int64_t>(keys.first - first_key, 0, bs);
  const int64_t to = std::clamp<int64_t>(keys.last - first_key, 0, bs);
  if (from < to) std::fill(row + from, row + to, uint16_t{0});
}

// |rows| more rows of the mask tensor, nothing visible: null when masks are not made.
uint16_t* MetadataBuilder::add_mask_rows(int64_t rows) {
  const int64_t begin = mask_rows_;
  mask_rows_ += rows;
  if (!options_.card_tables) return nullptr;
  masks_.resize(static_cast<size_t>(mask_rows_ * options_.block_size), mask_words(options_.dtype).none);
  return masks_.data() + begin * options_.block_size;
}

// ---------------------------------------------------------------- batched decode

std::optional<Variant> MetadataBuilder::grid_of(const graph::AttentionBatch& batch) const {
  int64_t blocks = 0;
  for (const SequencePlan& s : sequences_) {
    if (s.query_len != 1) return std::nullopt;
    blocks = std::max(blocks, s.blocks);
  }
  return bucketer_.batched_variant(batch.sequences(), blocks);
}

void MetadataBuilder::plan_grid(const graph::AttentionBatch& batch, const Variant& grid) {
  const int64_t width = ceil_div(grid.sequences, kPageRowWidth) * kPageRowWidth, live = std::ssize(sequences_);
  pages_.assign(static_cast<size_t>(grid.blocks * width), 0);  // padding reads the null block
  query_entries_ = grid.sequences;
  uint16_t* shared = add_mask_rows(kFirstOwn);
  if (options_.card_tables) {
    std::fill_n(shared + kAllVisible * options_.block_size, options_.block_size, uint16_t{0});
    std::fill_n(shared + kPaddingLane * options_.block_size, options_.block_size, mask_words(options_.dtype).lowest);
    grid_masks_.assign(pages_.size(), kNoneVisible);
    for (int64_t lane = live; lane < grid.sequences; ++lane) grid_masks_[lane] = kPaddingLane;
    for (int64_t lane = 0; lane < grid.sequences; ++lane) {
      query_rows_.push_back(static_cast<int32_t>(sequences_[std::min(lane, live - 1)].first_row));
    }
  }
  for (int64_t lane = 0; lane < live; ++lane) plan_lane(batch, lane, width);
}

void MetadataBuilder::plan_lane(const graph::AttentionBatch& batch, int64_t lane, int64_t width) {
  SequencePlan& s = sequences_[lane];
  s.page_table = lane;
  s.page_stride = width;
  const std::span<const int32_t> table = batch.blocks(lane);
  for (int64_t b = 0; b < s.blocks; ++b) {
    const int64_t block = s.first_block + b, entry = b * width + lane;
    pages_[entry] = table[block];
    const bool all = sees_all(s, block, batch.causal);
    if (options_.card_tables) grid_masks_[entry] = all ? kAllVisible : static_cast<int32_t>(mask_rows_);
    if (all) continue;
    uint16_t* row = add_mask_rows(1);
    if (row != nullptr) write_row(s, s.context, block, batch.causal, row);
  }
}

// ---------------------------------------------------------------- to the device

void MetadataBuilder::move_tables() {
  const int64_t page_rows = std::ssize(pages_) / kPageRowWidth;
  SPYRE_CHECK(query_entries_ <= query_capacity_ && page_rows <= page_capacity_ && mask_rows_ <= mask_capacity_ &&
                  (!tables_.grid || page_rows <= grid_capacity_),
              "tables of {} / {} / {} rows for {} / {} / {}", query_entries_, page_rows, mask_rows_, query_capacity_,
              page_capacity_, mask_capacity_);
  const auto move = [this](const device::DeviceTensor& table, const void* from, const char* label, int64_t rows) {
    if (options_.card_tables) return device_.upload(table, from, label, rows);
    device_.count_upload(table, label, rows);
  };
  move(tables_.query_rows, query_rows_.data(), "query_tables", query_entries_);
  device_.upload(tables_.pages, pages_.data(), "page_tables", page_rows);
  if (tables_.grid) move(tables_.grid_masks, grid_masks_.data(), "grid_masks", page_rows);
  if (mask_rows_ > 0) move(tables_.masks, masks_.data(), "masks", mask_rows_);
}

void MetadataBuilder::move_kv_rows(std::span<const int32_t> slots) {
  const auto tokens = std::ssize(slots);
  SPYRE_CHECK(tokens > 0 && tokens <= options_.max_num_batched_tokens, "slots of {} tokens, at most {}", tokens,
              options_.max_num_batched_tokens);
  for (size_t head = 0; head < kv_rows_.size(); ++head) {
    if (!options_.card_tables) {
      device_.count_upload(kv_rows_[head], "kv_rows", tokens);
      continue;
    }
    std::vector<int32_t> rows(slots.size());
    for (size_t t = 0; t < slots.size(); ++t) {
      // A row is a stick or more and the card has fewer than 2^31 of them.
      rows[t] = static_cast<int32_t>(
          kv_write_row(slots[t], static_cast<int64_t>(head), options_.kv_heads, options_.block_size));
    }
    device_.upload(kv_rows_[head], rows.data(), "kv_rows", tokens);
  }
}

}  // namespace spyre::attention
