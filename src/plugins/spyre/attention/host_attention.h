// The host step of the attention call: query rows attend over the pages of their sequences.
#pragma once

#include "plugins/spyre/attention/kv_store_step.h"
#include "plugins/spyre/attention/step_tables.h"
#include "plugins/spyre/device/host_loop.h"
#include "plugins/spyre/kernels/attention.h"

namespace spyre::attention {

// Work is dealt out by the step's tables (work_plan.h); every item walks its keys in ranges of 512 and merges them in
// order (docs/numerics.md §6). A barrier must follow before the next layer's: joined items meet in the tables' memory.
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
  class Item;
};

}  // namespace spyre::attention
