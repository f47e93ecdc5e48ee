// The tables of one step, shared by all its layers: which query rows, pages and mask tiles each sequence uses.
//
// Built on the host by MetadataBuilder, moved to the device in one transfer per table, read by the attention programs
// of every layer. Valid until the builder builds the next step.
//
// Two forms. Usually each sequence has a program of its own (SequencePlan::variant), with a mask tile of [query rows,
// block_size] for the blocks that need one. A step of at least four sequences with one token each is a *batched
// decode*: one program over the grid of (blocks, lanes), lane i being sequence i and lanes without a sequence padding.
// Its page table is [blocks, lanes rounded up to a stick of 32]; a table of the same shape names the row of the mask
// tensor for each block of each lane, since most of them see all of a block or nothing of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "graph/attention_batch.h"
#include "plugins/spyre/attention/buckets.h"
#include "plugins/spyre/device/tensor.h"

namespace spyre::attention {

inline constexpr int64_t kPageRowWidth = 32;  // int32 entries of one stick; a sequence's page index is entry 0

// Rows of the mask tensor that every batched decode has.
enum GridMask : int32_t {
  kAllVisible = 0,
  kNoneVisible = 1,
  // The first block of a padding lane: the lowest finite number, so that its softmax divides by something.
  kPaddingLane = 2,
  kFirstOwn = 3,  // of the blocks that a lane sees in part
};

struct SequencePlan {
  int64_t first_row = 0, query_len = 0;  // rows of the step
  int64_t context = 0, kv_len = 0;       // position of the first row; keys in the cache after the store
  int64_t first_block = 0, blocks = 0;   // active blocks: [first_block, first_block + blocks)
  // Active block b has its page at entry page_table + b * page_stride of the page table.
  int64_t page_table = 0, page_stride = 0;
  // Of a sequence that has a program of its own:
  Variant variant;          // padded query rows, padded blocks
  int64_t query_table = 0;  // first entry in the query-row table: variant.query entries
  int64_t tile_table = 0;   // index into tiles: one entry per active block
};

// One piece of attention work on the host: some query rows of one KV head of one sequence, over the ranges of 512 keys
// [first_range, end_range), which are all that these rows see unless the item is part of a join.
struct WorkItem {
  int32_t sequence = 0;
  int32_t kv_head = 0;
  int32_t first_row = 0, rows = 0;  // relative to the sequence
  int32_t first_range = 0, end_range = 0;
  int32_t join = -1;  // which, or -1
};

// Items that share their rows and divide their ranges. Range r of it has a state of its own at
// StepTables::states + state + (r - first_range) * state_floats; those of the first part are merged as they come, into
// the state of the first range. Whoever is the last of |parts| to arrive merges the others in ascending order.
struct WorkJoin {
  int64_t state = 0, state_floats = 0;
  int32_t first_range = 0, folded_end = 0, end_range = 0;  // ranges below folded_end are in the first state
  int32_t parts = 0;
};

struct StepTables {
  int64_t block_size = 0;
  bool causal = true;
  std::span<const SequencePlan> sequences;
  std::optional<Variant> grid;  // of a batched decode
  // For each active block of each sequence: the row in the mask tensor where its tile begins, or -1 = every key
  // visible.
  std::span<const int64_t> tiles;
  device::DeviceTensor query_rows;  // i32 [entries]: absolute rows; padding repeats the last real row
  device::DeviceTensor pages;       // i32 [rows, 32]; of a batched decode, rows are [blocks, lanes / 32]
  device::DeviceTensor grid_masks;  // i32 as the pages of a batched decode: rows of |masks|
  device::DeviceTensor masks;       // [rows, block_size] of the model's dtype: 0 visible, -inf masked
  // Of a head-major cache: per KV head an i32 [tokens] of its own (an index cannot be a view), the row that each of the
  // step's tokens is stored to (kv_write_row); -1 = not stored.
  std::span<const device::DeviceTensor> kv_rows;
  // Host work, dealt out once per step by length: items of thread t are items[starts[t] .. starts[t + 1]).
  std::span<const WorkItem> items;
  std::span<const int32_t> starts;
  std::span<const WorkJoin> joins;
  // Of the joins, for one layer at a time (a barrier stands between two layers): arrivals are 0 before and after.
  std::atomic<int32_t>* arrivals = nullptr;
  float* states = nullptr;
};

}  // namespace spyre::attention
