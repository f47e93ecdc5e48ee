// The host steps of the attention calls: storing keys and values into pages, and attending over them.
#pragma once

#include "plugins/spyre/attention/step_tables.h"
#include "plugins/spyre/device/host_loop.h"
#include "plugins/spyre/kernels/attention.h"

namespace spyre::attention {

// A [@T, heads, D] operand; D is contiguous. Strides in elements.
struct TokenRows {
  device::HostPlace place;
  int64_t token_stride = 0, head_stride = 0;
};

struct KvStoreStep final : device::HostStep {
  device::HostPlace state, slots;
  TokenRows k, v;
  device::HostDim tokens;
  int64_t heads = 0, head_dim = 0;

  void run(const device::HostFrame& frame, int thread, int threads) const override;
  std::string describe() const override;
};

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
