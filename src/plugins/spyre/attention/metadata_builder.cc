#include "plugins/spyre/attention/metadata_builder.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"

namespace spyre::attention {
namespace {

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

constexpr uint16_t kMaskedF16 = 0xfc00;   // -inf
constexpr uint16_t kMaskedBf16 = 0xff80;  // -inf

// Positions of one work item: fine enough to balance threads, coarse enough that a KV group is read for many rows.
constexpr int64_t kItemPositions = 64;

}  // namespace

// Sizes: sequences * largest bucket would be safe but absurd. Chunks share the step's token budget, and each is padded
// by less than one step of the ladder. Tables grow only here.
MetadataBuilder::MetadataBuilder(device::SoftwareDevice& device, const Bucketer& bucketer,
                                 const BuilderOptions& options)
    : device_(device), bucketer_(bucketer), options_(options) {
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
  mask_capacity_ = std::min(by_chunks, query_capacity_ * blocks);
  using device::Axis;
  using device::TensorSpec;
  tables_.query_rows = device_.allocate(TensorSpec::plain(DType::kI32, {query_capacity_}), "tables");
  tables_.pages = device_.allocate(TensorSpec::plain(DType::kI32, {page_capacity_, kPageRowWidth}), "tables");
  tables_.masks = device_.allocate(TensorSpec::plain(options.dtype, {mask_capacity_, options.block_size}), "tables");
  query_rows_.reserve(query_capacity_);
  pages_.reserve(page_capacity_ * kPageRowWidth);
}

const StepTables& MetadataBuilder::build(const graph::AttentionBatch& batch) {
  SPYRE_CHECK(batch.block_size == options_.block_size, "block size {}", batch.block_size);
  sequences_.clear();
  tiles_.clear();
  query_rows_.clear();
  pages_.clear();
  masks_.clear();
  items_.clear();
  for (int64_t i = 0; i < batch.sequences(); ++i) plan_sequence(batch, i);
  const auto query_entries = static_cast<int64_t>(query_rows_.size());
  const auto page_rows = static_cast<int64_t>(pages_.size()) / kPageRowWidth;
  const auto mask_rows = static_cast<int64_t>(masks_.size()) / options_.block_size;
  SPYRE_CHECK(query_entries <= query_capacity_ && page_rows <= page_capacity_ && mask_rows <= mask_capacity_,
              "tables of {} / {} / {} rows for {} / {} / {}", query_entries, page_rows, mask_rows, query_capacity_,
              page_capacity_, mask_capacity_);
  device_.upload(tables_.query_rows, query_rows_.data(), "query_tables", query_entries);
  device_.upload(tables_.pages, pages_.data(), "page_tables", page_rows);
  if (mask_rows > 0) device_.upload(tables_.masks, masks_.data(), "masks", mask_rows);
  deal_work(device_.options().threads);
  tables_.block_size = options_.block_size;
  tables_.causal = batch.causal;
  tables_.sequences = sequences_;
  tables_.tiles = tiles_;
  tables_.items = dealt_;
  tables_.starts = starts_;
  return tables_;
}

// Which blocks of the sequence any row can see, and which of them need a mask tile of their own.
void MetadataBuilder::plan_sequence(const graph::AttentionBatch& batch, int64_t index) {
  const int64_t bs = options_.block_size, window = options_.window;
  SequencePlan s;
  s.first_row = batch.query_start[index];
  s.query_len = batch.query_start[index + 1] - batch.query_start[index];
  s.kv_len = batch.seq_lens[index];
  s.context = batch.context(index);
  const int64_t total = ceil_div(s.kv_len, bs);
  s.first_block =
      window > 0 ? std::max<int64_t>(0, s.context - window + 1) / bs : 0;  // the earliest row sees furthest back
  s.blocks = total - s.first_block;
  s.variant = bucketer_.variant(s.query_len, s.blocks);
  s.query_table = static_cast<int64_t>(query_rows_.size());
  s.page_table = static_cast<int64_t>(pages_.size()) / kPageRowWidth;
  s.tile_table = static_cast<int64_t>(tiles_.size());
  for (int64_t i = 0; i < s.variant.query; ++i) {
    query_rows_.push_back(static_cast<int32_t>(s.first_row + std::min(i, s.query_len - 1)));
  }
  const std::span<const int32_t> table = batch.blocks(index);
  const bool causal = batch.causal;
  // The first row sees the least at the end, the last row the least at the beginning.
  const int64_t seen_from = graph::visible_keys(s.kv_len - 1, s.kv_len, causal, window).first;
  const int64_t seen_to = graph::visible_keys(s.context, s.kv_len, causal, window).last;
  for (int64_t b = s.first_block; b < total; ++b) {
    pages_.resize(pages_.size() + kPageRowWidth, 0);
    pages_[pages_.size() - kPageRowWidth] = table[b];
    const bool own_tile = b * bs < seen_from || (b + 1) * bs > seen_to || b == total - 1;
    tiles_.push_back(own_tile ? static_cast<int64_t>(masks_.size()) / bs : -1);
    if (own_tile) write_tile(s, b, causal);
  }
  for (int64_t head = 0; head < options_.kv_heads; ++head) {
    for (int64_t row = 0; row < s.query_len; row += kItemPositions) {
      items_.push_back({static_cast<int32_t>(index), static_cast<int32_t>(head), static_cast<int32_t>(row),
                        static_cast<int32_t>(std::min(kItemPositions, s.query_len - row))});
    }
  }
  sequences_.push_back(s);
}

// [padded query rows, block_size]: 0 where the row may see the key, -inf elsewhere. Padded rows are those of the last
// real row.
void MetadataBuilder::write_tile(const SequencePlan& s, int64_t block, bool causal) {
  const int64_t bs = options_.block_size, first_key = block * bs;
  const uint16_t masked = options_.dtype == DType::kBF16 ? kMaskedBf16 : kMaskedF16;
  const size_t begin = masks_.size();
  masks_.resize(begin + static_cast<size_t>(s.variant.query * bs), masked);
  for (int64_t i = 0; i < s.variant.query; ++i) {
    const int64_t position = s.context + std::min(i, s.query_len - 1);
    const graph::KeyRange keys = graph::visible_keys(position, s.kv_len, causal, options_.window);
    const int64_t from = std::clamp<int64_t>(keys.first - first_key, 0, bs);
    const int64_t to = std::clamp<int64_t>(keys.last - first_key, 0, bs);
    uint16_t* row = masks_.data() + begin + static_cast<size_t>(i * bs);
    if (from < to) std::fill(row + from, row + to, uint16_t{0});
  }
}

// Longest first, each to the thread with the least so far. An item's cost is its rows times the keys it reads; the deal
// changes who computes, never what.
void MetadataBuilder::deal_work(int threads) {
  auto cost = [this](const WorkItem& item) {
    const SequencePlan& s = sequences_[item.sequence];
    const int64_t keys = std::min<int64_t>(s.kv_len, s.context + item.first_row + item.rows);
    return keys * (item.rows + 8);  // reading a key costs about as much as 8 rows' arithmetic on it
  };
  auto order = [&](const WorkItem& item) {
    return std::make_tuple(-cost(item), item.sequence, item.kv_head, item.first_row);
  };
  std::sort(items_.begin(), items_.end(), [&](const auto& a, const auto& b) { return order(a) < order(b); });
  std::vector<int64_t>& load = load_;
  load.assign(threads, 0);
  owner_.resize(items_.size());
  for (size_t i = 0; i < items_.size(); ++i) {
    const auto least = std::min_element(load.begin(), load.end());
    owner_[i] = static_cast<int32_t>(least - load.begin());
    *least += cost(items_[i]);
  }
  dealt_.clear();
  starts_.assign(1, 0);
  for (int t = 0; t < threads; ++t) {
    for (size_t i = 0; i < items_.size(); ++i) {
      if (owner_[i] == t) dealt_.push_back(items_[i]);
    }
    starts_.push_back(static_cast<int32_t>(dealt_.size()));
  }
}

}  // namespace spyre::attention
