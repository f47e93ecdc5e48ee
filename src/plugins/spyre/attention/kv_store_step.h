// The host step of kv_store: keys and values go into the pages that the step's slots name.
#pragma once

#include "plugins/spyre/device/host_loop.h"
#include "plugins/spyre/device/host_plan.h"
#include "plugins/spyre/device/tensor.h"
#include "plugins/spyre/kernels/kv_pages.h"

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
  device::StepForm form() const override;  // its columns are those of k
  void run_rows(const device::HostFrame& frame, Range rows) const override;
  void run_columns(const device::HostFrame& frame, Range rows, std::span<const Range> columns) const override;
  std::string describe() const override;

 private:
  // The heads [head, head + count) of the tokens |rows|.
  void store(const device::HostFrame& frame, Range rows, Range heads) const;
};

// The layout of a store's pages, and where one of them is. REQUIRES: 0 <= block < num_blocks.
kernels::KvPageLayout page_layout(const device::TensorStore& store, int64_t heads, int64_t head_dim);
uint16_t* page(const device::TensorStore& store, int64_t block);

}  // namespace spyre::attention
