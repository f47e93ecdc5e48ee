// MetadataBuilder: makes the tables of a step on the host and moves them to the device, one transfer per table.
//
// Owned by the model runner; one build() per step. What it builds stays valid until the next build().
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plugins/spyre/attention/buckets.h"
#include "plugins/spyre/attention/kv_layout.h"
#include "plugins/spyre/attention/step_tables.h"
#include "plugins/spyre/attention/work_plan.h"
#include "plugins/spyre/device/device.h"

namespace spyre::attention {

struct BuilderOptions {
  int64_t block_size = 128;
  int64_t max_num_batched_tokens = 0;
  int64_t max_num_seqs = 0;
  int64_t max_model_len = 0;
  DType dtype = DType::kF16;  // of the mask
  // Of the layers that share the tables: how host work is dealt out (work_plan.h).
  int64_t kv_heads = 1;
  int64_t group = 1;     // query heads per KV head, the most of any layer
  int64_t head_dim = 0;  // the largest of any layer; 0: no sequence's keys are divided over threads
  int64_t window = 0;    // 0 = none
  KvLayout kv_layout = KvLayout::kTokenMajor;  // of the caches: a head-major one has an index per KV head
  // Whether the tables that only the card's programs read are made: query rows and masks. The host plan knows what they
  // say from the sequences; their transfers are counted all the same.
  bool card_tables = true;
};

class MetadataBuilder {
 public:
  // Allocates the device tables at their largest size.
  MetadataBuilder(device::SoftwareDevice& device, const Bucketer& bucketer, const BuilderOptions& options);

  // |slots| are those of the step's tokens; only head-major caches need them. Throws Error(kInternal) for a batch
  // beyond the options' limits.
  const StepTables& build(const graph::AttentionBatch& batch, std::span<const int32_t> slots = {});

 private:
  SequencePlan active_blocks(const graph::AttentionBatch& batch, int64_t index) const;
  bool sees_all(const SequencePlan& sequence, int64_t block, bool causal) const;
  void plan_sequence(const graph::AttentionBatch& batch, int64_t index);
  void write_tile(const SequencePlan& sequence, int64_t block, bool causal);
  void write_row(const SequencePlan& sequence, int64_t position, int64_t block, bool causal, uint16_t* row) const;
  uint16_t* add_mask_rows(int64_t rows);
  std::optional<Variant> grid_of(const graph::AttentionBatch& batch) const;
  void plan_grid(const graph::AttentionBatch& batch, const Variant& grid);
  void plan_lane(const graph::AttentionBatch& batch, int64_t lane, int64_t width);
  void move_tables();
  void move_kv_rows(std::span<const int32_t> slots);

  device::SoftwareDevice& device_;
  const Bucketer& bucketer_;
  BuilderOptions options_;
  WorkPlan work_;
  StepTables tables_;
  std::vector<SequencePlan> sequences_;
  std::vector<int64_t> tiles_;
  std::vector<int32_t> query_rows_, pages_, grid_masks_;
  std::vector<device::DeviceTensor> kv_rows_;  // per KV head, of a head-major cache
  std::vector<uint16_t> masks_;
  int64_t query_entries_ = 0, mask_rows_ = 0;  // of the step, made or not
  int64_t query_capacity_ = 0, page_capacity_ = 0, grid_capacity_ = 0, mask_capacity_ = 0;
};

}  // namespace spyre::attention
