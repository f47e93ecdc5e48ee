// The host step of the attention call: query rows attend over the pages of their sequences.
#pragma once

#include "plugins/spyre/attention/kv_store_step.h"
#include "plugins/spyre/attention/step_tables.h"
#include "plugins/spyre/device/host_loop.h"
#include "plugins/spyre/kernels/attention.h"

namespace spyre::attention {

// Work is dealt out by the step's tables; every item walks its keys in ranges of 512 and merges them in order
// (docs/numerics.md §6).
struct AttentionStep final : device::HostStep {
  const kernels::AttentionKernels* kernels = nullptr;
  TokenRows q, out;
  device::HostPlace state;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1, soft_cap = 0;
  int64_t window = 0;

  void run(const device::HostFrame& frame, int thread, int threads) const override;
  std::string describe() const override;
  size_t scratch_bytes() const override;

 private:
  // |next| is the thread's next item, or null: its first keys are asked for while the last ones of |item| are read.
  void attend(const device::HostFrame& frame, const WorkItem& item, const WorkItem* next, std::byte* scratch) const;
  // Query rows of one call: a multiple of the group, small enough for their state to stay in L1.
  int64_t positions_per_call() const;
};

}  // namespace spyre::attention
