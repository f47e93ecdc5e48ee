#include "plugins/spyre/attention/kv_layout.h"

#include "base/error.h"
#include "plugins/spyre/device/entry_layout.h"

namespace spyre::attention {

using device::TensorSpec;

std::string_view to_string(KvLayout layout) {
  return layout == KvLayout::kTokenMajor ? "token_major" : "head_major";
}

TensorSpec kv_spec(KvLayout layout, DType dtype, int64_t num_blocks, int64_t block_size, const device::Axis& heads,
                   const device::Axis& head) {
  TensorSpec spec{.dtype = dtype};
  if (layout == KvLayout::kTokenMajor) {
    spec.axes = {device::Axis(num_blocks * block_size), heads, head};
  } else {
    // Rows of a head lie one after another, so that the cache can be seen as [blocks * heads, block, head size] (reads
    // by (page, head)) and as [blocks * heads * block, head size] (writes by row): an indexed axis has to be outermost.
    spec.axes = {device::Axis(num_blocks), heads, device::Axis(block_size), head};
  }
  spec.layout = device::entry_layout(dtype, spec.card());
  return spec;
}

KvLayout kv_layout_of(const TensorSpec& spec) {
  SPYRE_CHECK(spec.axes.size() == 3 || spec.axes.size() == 4, "a KV cache of rank {}", spec.axes.size());
  return spec.axes.size() == 3 ? KvLayout::kTokenMajor : KvLayout::kHeadMajor;
}

int64_t kv_write_row(int64_t slot, int64_t head, int64_t kv_heads, int64_t block_size) {
  if (slot < 0) return -1;
  return (slot / block_size * kv_heads + head) * block_size + slot % block_size;
}

}  // namespace spyre::attention
