#include "plugins/spyre/attention/metadata_builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/half.h"

namespace spyre::attention {
namespace {

struct Batch {
  std::vector<int32_t> query_start{0}, seq_lens, block_table;
  int64_t max_blocks = 0;

  // One sequence: |query| new tokens after |context| old ones; block ids count up from |first_block|.
  void add(int64_t query, int64_t context) {
    query_start.push_back(query_start.back() + static_cast<int32_t>(query));
    seq_lens.push_back(static_cast<int32_t>(query + context));
  }
  graph::AttentionBatch finish(int64_t block_size) {
    max_blocks = 0;
    for (int32_t length : seq_lens) max_blocks = std::max(max_blocks, (length + block_size - 1) / block_size);
    block_table.clear();
    for (size_t i = 0; i < seq_lens.size() * static_cast<size_t>(max_blocks); ++i) {
      block_table.push_back(static_cast<int32_t>(1 + i));
    }
    return {.block_size = block_size,
            .query_start = query_start,
            .seq_lens = seq_lens,
            .block_table = block_table,
            .max_blocks = max_blocks};
  }
};

// The masks, pages and rows of a step say exactly which key each query row may see.
void expect_tables(const StepTables& tables, const Batch& batch, int64_t block_size, int64_t window,
                   bool causal = true) {
  const auto* pages = reinterpret_cast<const int32_t*>(tables.pages->memory.data());
  const auto* rows = reinterpret_cast<const int32_t*>(tables.query_rows->memory.data());
  const auto* masks = reinterpret_cast<const uint16_t*>(tables.masks->memory.data());
  for (size_t s = 0; s < tables.sequences.size(); ++s) {
    const SequencePlan& plan = tables.sequences[s];
    const int64_t query = batch.query_start[s + 1] - batch.query_start[s], length = batch.seq_lens[s];
    for (int64_t q = 0; q < plan.variant.query; ++q) {
      const int64_t real = std::min(q, query - 1), position = length - query + real;
      ASSERT_EQ(rows[plan.query_table + q], batch.query_start[s] + real);
      for (int64_t key = 0; key < length; ++key) {
        const bool near = window == 0 || std::abs(key - position) < window;
        const bool may = near && (key <= position || !causal);
        const int64_t block = key / block_size - plan.first_block;
        bool sees = false;
        if (block >= 0) {
          ASSERT_LT(block, plan.blocks);
          ASSERT_EQ(
              pages[plan.page_table + block * plan.page_stride],
              batch.block_table[s * static_cast<size_t>(batch.max_blocks) + static_cast<size_t>(key / block_size)]);
          const int64_t tile = tables.tiles[static_cast<size_t>(plan.tile_table + block)];
          sees = tile < 0 || masks[(tile + q) * block_size + key % block_size] == 0;
        }
        ASSERT_EQ(sees, may) << "sequence " << s << " row " << q << " key " << key << " window " << window;
      }
    }
  }
}

// The same of a batched decode, and that padding reads the null block and sees nothing but the lowest number.
void expect_grid(const StepTables& tables, const Batch& batch, int64_t block_size, int64_t window) {
  ASSERT_TRUE(tables.grid.has_value());
  const auto* pages = reinterpret_cast<const int32_t*>(tables.pages->memory.data());
  const auto* rows = reinterpret_cast<const int32_t*>(tables.query_rows->memory.data());
  const auto* mask_rows = reinterpret_cast<const int32_t*>(tables.grid_masks->memory.data());
  const auto* masks = reinterpret_cast<const uint16_t*>(tables.masks->memory.data());
  const int64_t width = (tables.grid->sequences + 31) / 32 * 32, live = std::ssize(batch.seq_lens);
  for (int64_t lane = 0; lane < tables.grid->sequences; ++lane) {
    ASSERT_EQ(rows[lane], std::min(lane, live - 1));
    const int64_t length = lane < live ? batch.seq_lens[static_cast<size_t>(lane)] : 0;
    const int64_t first = lane < live ? tables.sequences[static_cast<size_t>(lane)].first_block : 0;
    for (int64_t b = 0; b < tables.grid->blocks; ++b) {
      const int64_t entry = b * width + lane, block = first + b;
      const bool read = block * block_size < length;
      ASSERT_EQ(pages[entry], read ? batch.block_table[static_cast<size_t>(lane * batch.max_blocks + block)] : 0);
      for (int64_t i = 0; i < block_size; ++i) {
        const int64_t key = block * block_size + i;
        const bool sees = key < length && (window == 0 || key > length - 1 - window);
        const uint16_t padding = lane >= live && b == 0 ? 0xfbff : 0xfc00;
        ASSERT_EQ(masks[mask_rows[entry] * block_size + i], sees ? 0 : padding) << "lane " << lane << " key " << key;
      }
    }
  }
}

TEST(MetadataBuilder, TablesOfABatchedDecode) {
  std::mt19937 random(4);
  for (int round = 0; round < 40; ++round) {
    const int64_t block_size = random() % 2 == 0 ? 64 : 128, window = random() % 3 == 0 ? 1 + random() % 200 : 0;
    const BucketOptions buckets{
        .block_size = block_size, .max_model_len = 600, .max_num_batched_tokens = 96, .max_num_seqs = 70};
    const Bucketer bucketer(buckets);
    device::SoftwareDevice device({.threads = 1});
    MetadataBuilder builder(device, bucketer,
                            {.block_size = block_size,
                             .max_num_batched_tokens = 96,
                             .max_num_seqs = 70,
                             .max_model_len = 600,
                             .dtype = DType::kF16,
                             .window = window});
    Batch batch;
    for (int64_t s = 4 + static_cast<int64_t>(random() % 67); s > 0; --s) batch.add(1, random() % 599);
    expect_grid(builder.build(batch.finish(block_size)), batch, block_size, window);
  }
}

// A step of fewer sequences, or with a chunk among them, has a program per sequence.
TEST(MetadataBuilder, WhatIsNoBatchedDecode) {
  const Bucketer bucketer({.block_size = 64, .max_model_len = 512, .max_num_batched_tokens = 64, .max_num_seqs = 8});
  device::SoftwareDevice device({.threads = 1});
  MetadataBuilder builder(device, bucketer,
                          {.block_size = 64, .max_num_batched_tokens = 64, .max_num_seqs = 8, .max_model_len = 512});
  Batch three, mixed;
  for (int i = 0; i < 3; ++i) three.add(1, 100);
  for (int i = 0; i < 7; ++i) mixed.add(i == 5 ? 2 : 1, 100);
  EXPECT_FALSE(builder.build(three.finish(64)).grid.has_value());
  const StepTables& tables = builder.build(mixed.finish(64));
  EXPECT_FALSE(tables.grid.has_value());
  expect_tables(tables, mixed, 64, 0);
}

TEST(MetadataBuilder, TablesSayWhatEachRowSees) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    const int64_t block_size = random() % 2 == 0 ? 64 : 128, window = random() % 3 == 0 ? 1 + random() % 200 : 0;
    const Bucketer bucketer(
        {.block_size = block_size, .max_model_len = 600, .max_num_batched_tokens = 96, .query_buckets = {1, 32, 96}});
    device::SoftwareDevice device({.threads = 1});
    MetadataBuilder builder(device, bucketer,
                            {.block_size = block_size,
                             .max_num_batched_tokens = 96,
                             .max_num_seqs = 6,
                             .max_model_len = 600,
                             .dtype = DType::kF16,
                             .kv_heads = 2,
                             .window = window});
    Batch batch;
    int64_t budget = 96;
    for (int s = 0; s < 6 && budget > 0; ++s) {
      const int64_t query = std::min<int64_t>(budget, 1 + static_cast<int64_t>(random() % 40));
      budget -= query;
      batch.add(query, static_cast<int64_t>(random() % 500));
    }
    graph::AttentionBatch step = batch.finish(block_size);
    expect_tables(builder.build(step), batch, block_size, window);
    step.causal = false;
    expect_tables(builder.build(step), batch, block_size, window, false);
  }
}

// Work items cover every (sequence, KV head, row) once, however many threads share them.
TEST(MetadataBuilder, WorkIsDealtOutWhole) {
  for (int threads : {1, 2, 3, 8}) {
    const Bucketer bucketer({.block_size = 64, .max_model_len = 512, .max_num_batched_tokens = 300});
    device::SoftwareDevice device({.threads = threads});
    MetadataBuilder builder(
        device, bucketer,
        {.block_size = 64, .max_num_batched_tokens = 300, .max_num_seqs = 4, .max_model_len = 512, .kv_heads = 3});
    Batch batch;
    batch.add(200, 100);
    batch.add(1, 400);
    batch.add(70, 0);
    const StepTables& tables = builder.build(batch.finish(64));
    std::vector<int> seen(static_cast<size_t>(3 * 271), 0);
    ASSERT_EQ(tables.starts.size(), static_cast<size_t>(threads) + 1);
    EXPECT_EQ(tables.starts.front(), 0);
    EXPECT_EQ(tables.starts.back(), static_cast<int32_t>(tables.items.size()));
    for (const WorkItem& item : tables.items) {
      for (int32_t r = 0; r < item.rows; ++r) {
        const int64_t row = batch.query_start[static_cast<size_t>(item.sequence)] + item.first_row + r;
        ++seen[static_cast<size_t>(item.kv_head * 271 + row)];
      }
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), 3 * 271);
  }
}

// Tables are sized for the worst legal step of any ladder: all sequences padded to the widest bucket.
TEST(MetadataBuilder, TheWidestStepFitsItsTables) {
  for (const std::vector<int64_t>& ladder : {std::vector<int64_t>{512}, {256, 512}, {1, 512}, {1, 2, 300, 512}}) {
    const Bucketer bucketer(
        {.block_size = 64, .max_model_len = 1024, .max_num_batched_tokens = 512, .query_buckets = ladder});
    device::SoftwareDevice device({.threads = 1});
    MetadataBuilder builder(
        device, bucketer, {.block_size = 64, .max_num_batched_tokens = 512, .max_num_seqs = 16, .max_model_len = 1024});
    for (int64_t query : {1, 2, 3, 32}) {
      Batch batch;
      for (int s = 0; s < 16; ++s) batch.add(query, 1024 - query);
      EXPECT_NO_THROW(builder.build(batch.finish(64)));
    }
    Batch one;
    one.add(512, 512);
    EXPECT_NO_THROW(builder.build(one.finish(64)));
  }
}

// Any legal step fits, and tables stay small beside what 16 sequences of the widest bucket would take.
TEST(MetadataBuilder, EveryLegalStepFitsItsTables) {
  std::mt19937 random(5);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int round = 0; round < 40; ++round) {
    const int64_t block_size = random() % 2 == 0 ? 64 : 128, budget = 1 + below(600), length = 1 + below(1500);
    const int64_t seqs = 1 + below(16), window = random() % 2 == 0 ? 1 + below(300) : 0;
    std::vector<int64_t> ladder;
    for (int64_t n = below(5); n > 0; --n) ladder.push_back(1 + below(700));
    const Bucketer bucketer(
        {.block_size = block_size, .max_model_len = length, .max_num_batched_tokens = budget, .query_buckets = ladder});
    device::SoftwareDevice device({.threads = 1});
    MetadataBuilder builder(device, bucketer,
                            {.block_size = block_size,
                             .max_num_batched_tokens = budget,
                             .max_num_seqs = seqs,
                             .max_model_len = length,
                             .window = window});
    for (int step = 0; step < 12; ++step) {
      Batch batch;
      int64_t left = budget;
      const int64_t even = std::max<int64_t>(1, budget / seqs);
      for (int64_t s = 0; s < seqs && left > 0; ++s) {
        int64_t query = step % 3 == 0 ? 1 : step % 3 == 1 ? even : 1 + below(left);
        if (s + 1 == seqs) query = left;  // the whole budget
        query = std::min({query, left, length});
        left -= query;
        batch.add(query, below(length - query + 1));
      }
      EXPECT_NO_THROW(builder.build(batch.finish(block_size)))
          << "round " << round << ": budget " << budget << ", " << seqs << " sequences of " << length;
    }
  }
}

TEST(MetadataBuilder, TablesOfAServerAreSmall) {
  const Bucketer bucketer({.block_size = 128, .max_model_len = 131072, .max_num_batched_tokens = 8192});
  device::SoftwareDevice device({.threads = 1});
  const MetadataBuilder builder(
      device, bucketer,
      {.block_size = 128, .max_num_batched_tokens = 8192, .max_num_seqs = 256, .max_model_len = 131072});
  // 8702 rows x 68 tiles and 255 x 511 x 4, of 256 bytes each; and 256 x 1024 rows of the page table.
  EXPECT_LT(device.memory().used_by_label().at("tables"), int64_t{400} << 20);
}

}  // namespace
}  // namespace spyre::attention
