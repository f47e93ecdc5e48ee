// WorkPlan: who computes what of a step's attention on the host. Made once per step, the same for all its layers.
//
// The work lies on a line: for each sequence, KV head and block of positions one unit, whose length is what it costs.
// The line is cut into a stretch of equal length for each thread. A cut that falls into a unit moves to its end when
// that is near; otherwise it divides the unit: the ranges of 512 keys of one with few query rows (a long sequence that
// decodes: its keys are what takes time), the positions of any other. Ranges are computed apart and merged in
// ascending order by definition (docs/numerics.md §6), so that a cut changes who computes, never what: each part of a
// divided unit keeps a state per range, and whoever comes last merges them.
//
// Owns its lists and the memory of those states, all of it taken at construction; build() allocates nothing. One per
// MetadataBuilder, and like it used by one thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plugins/spyre/attention/step_tables.h"

namespace spyre::attention {

// Positions whose query rows (|group| each) make one kernel call: at most 60 rows, so that their state (60 x 64 floats)
// stays near, and a multiple of six where it can be, the height of the kernels' register tiles.
int64_t positions_per_call(int64_t group);
inline constexpr int64_t kMostCallPositions = 60;

// Floats of the state of |rows| query rows, rounded up to whole cache lines: two threads never write one of them.
int64_t state_floats(int64_t rows, int64_t head_dim);

struct WorkOptions {
  int threads = 1;
  int64_t kv_heads = 1;
  int64_t group = 1;     // query heads per KV head: the most of any layer
  int64_t head_dim = 0;  // the largest of any layer; 0: no unit's ranges are divided
  int64_t window = 0;    // 0 = none
  int64_t max_model_len = 0, max_num_batched_tokens = 0, max_num_seqs = 0;
};

class WorkPlan {
 public:
  explicit WorkPlan(const WorkOptions& options);

  // What it made is valid until the next build.
  void build(std::span<const SequencePlan> sequences, bool causal);
  void describe(StepTables& tables);

 private:
  // A unit, or what is left of it behind the cuts so far.
  struct Unit {
    WorkItem item;
    bool by_ranges = false;
    int64_t cost = 0;
    int64_t begin = 0, end = 0;  // in ranges or positions, whichever it is divided by
    int64_t keys_begin = 0, keys_end = 0;
  };

  void list_units(const SequencePlan& sequence, int32_t index, bool causal);
  int64_t pairs(const SequencePlan& sequence, int64_t first, int64_t count, bool causal) const;
  void lay_out(Unit unit, std::span<const SequencePlan> sequences, bool causal);
  int64_t nearest_cut(const Unit& unit, int64_t offset, std::span<const SequencePlan> sequences, bool causal) const;
  bool open_join(const Unit& unit);
  void emit(const Unit& unit, int64_t begin, int64_t end);

  WorkOptions options_;
  int64_t positions_per_item_ = 0, split_rows_ = 0;
  std::vector<Unit> units_;
  std::vector<WorkItem> items_;
  std::vector<int32_t> starts_;
  std::vector<WorkJoin> joins_;
  // While the line is cut: its length, where the unit in hand begins, and the join it has been divided into.
  int64_t total_ = 0, at_ = 0;
  int32_t join_ = -1;
  int64_t states_used_ = 0, states_capacity_ = 0;  // floats
  std::unique_ptr<float[]> states_;                // cache-line aligned through |states_at_|
  float* states_at_ = nullptr;
  std::unique_ptr<std::atomic<int32_t>[]> arrivals_;
};

}  // namespace spyre::attention
