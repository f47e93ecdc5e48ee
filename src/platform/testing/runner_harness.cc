#include "platform/testing/runner_harness.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "platform/instance.h"

namespace spyre::platform::testing {

RunnerHarness::RunnerHarness(const Platform& platform, EngineConfig config, int64_t num_blocks) {
  checkpoint_ = formats::Checkpoint::open(config.model);
  platform.check_and_update_config(config, checkpoint_->config());
  config_ = std::move(config);
  runner_ = platform.create_model_runner(config_, checkpoint_);
  runner_->load_model([](const runner::LoadProgress&) {});
  spec_ = runner_->kv_cache_spec();
  num_blocks_ = num_blocks > 0 ? num_blocks : size_kv_cache(config_, spec_).blocks;
  runner_->initialize_kv_cache(num_blocks_);
  runner_->warm_up();
}

std::vector<std::vector<float>> RunnerHarness::run(const std::vector<Piece>& pieces) {
  std::vector<int32_t> token_ids, positions, slots, query_start{0}, seq_lens, table, logits_rows;
  size_t max_blocks = 1;
  for (const Piece& piece : pieces) max_blocks = std::max(max_blocks, piece.blocks.size());
  for (const Piece& piece : pieces) {
    for (size_t i = 0; i < piece.tokens.size(); ++i) {
      const int64_t position = piece.start + static_cast<int64_t>(i);
      const int32_t block = piece.blocks.at(position / spec_.block_size);
      SPYRE_CHECK(block > 0 && block < num_blocks_, "block {}", block);
      const bool last = i + 1 == piece.tokens.size();
      if (piece.rows == Piece::Rows::kAll || (piece.rows == Piece::Rows::kLast && last)) {
        logits_rows.push_back(static_cast<int32_t>(token_ids.size()));
      }
      token_ids.push_back(piece.tokens[i]);
      positions.push_back(static_cast<int32_t>(position));
      slots.push_back(static_cast<int32_t>(block * spec_.block_size + position % spec_.block_size));
    }
    query_start.push_back(static_cast<int32_t>(token_ids.size()));
    seq_lens.push_back(static_cast<int32_t>(piece.start + std::ssize(piece.tokens)));
    table.insert(table.end(), piece.blocks.begin(), piece.blocks.end());
    table.resize(seq_lens.size() * max_blocks, 0);
  }
  const runner::ForwardBatch batch{.token_ids = token_ids,
                                   .positions = positions,
                                   .slots = slots,
                                   .attention = {.block_size = spec_.block_size,
                                                 .query_start = query_start,
                                                 .seq_lens = seq_lens,
                                                 .block_table = table,
                                                 .max_blocks = static_cast<int64_t>(max_blocks)},
                                   .logits_rows = logits_rows};
  logits_.row_errors.clear();
  runner_->forward(batch, logits_);
  std::vector<std::vector<float>> result;
  for (size_t i = 0; i < logits_rows.size(); ++i) {
    const std::span<const float> row = logits_.row(static_cast<int64_t>(i));
    result.emplace_back(row.begin(), row.end());
  }
  return result;
}

std::vector<std::vector<float>> RunnerHarness::prefill(const std::vector<int32_t>& tokens,
                                                       const std::vector<int64_t>& chunks,
                                                       const std::vector<int32_t>& blocks) {
  std::vector<std::vector<float>> result;
  const int64_t total = std::ssize(tokens);
  int64_t at = 0;
  for (size_t i = 0; at < total; ++i) {
    const int64_t count = std::min({chunks[i % chunks.size()], total - at, *config_.max_num_batched_tokens});
    std::vector<std::vector<float>> rows = run({{.tokens = {tokens.begin() + at, tokens.begin() + at + count},
                                                 .start = at,
                                                 .blocks = blocks,
                                                 .rows = Piece::Rows::kAll}});
    std::move(rows.begin(), rows.end(), std::back_inserter(result));
    at += count;
  }
  return result;
}

std::vector<int32_t> RunnerHarness::blocks_for(int64_t tokens, int32_t first) const {
  std::vector<int32_t> blocks((tokens + spec_.block_size - 1) / spec_.block_size);
  std::iota(blocks.begin(), blocks.end(), first);
  return blocks;
}

}  // namespace spyre::platform::testing
