#include "plugins/spyre/attention/kv_store_step.h"

#include "base/error.h"

namespace spyre::attention {

using device::at;
using device::HostFrame;
using device::TensorStore;

kernels::KvPageLayout page_layout(const TensorStore& store, int64_t heads, int64_t head_dim) {
  return {store.spec.dtype, store.order, store.block_size, heads, head_dim};
}

uint16_t* page(const TensorStore& store, int64_t block) {
  SPYRE_CHECK(block >= 0 && block < store.num_blocks, "KV block {} of {}", block, store.num_blocks);
  return reinterpret_cast<uint16_t*>(store.pages + block * store.page_stride);
}

void KvStoreStep::run(const HostFrame& frame, int thread, int threads) const {
  TensorStore& store = *frame.stores[state.slot];
  const kernels::KvPageLayout layout = page_layout(store, heads, head_dim);
  const auto* slot_ids = at<const int32_t>(frame, slots);
  const Range mine = split_range(tokens.live(frame.rows) * heads, 1, thread, threads);
  for (int64_t i = mine.begin; i < mine.end; ++i) {
    const int64_t token = i / heads, head = i % heads;
    const int64_t slot = slot_ids[token];
    if (slot < 0) continue;
    layout.write(page(store, slot / store.block_size), slot % store.block_size, head,
                 at<const uint16_t>(frame, k.place) + token * k.token_stride + head * k.head_stride,
                 at<const uint16_t>(frame, v.place) + token * v.token_stride + head * v.head_stride);
  }
}

std::string KvStoreStep::describe() const {
  return fmt::format("kv_store heads={} d={}", heads, head_dim);
}

}  // namespace spyre::attention
