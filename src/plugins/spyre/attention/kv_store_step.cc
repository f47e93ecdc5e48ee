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
  store(frame, split_range(tokens.live(frame.rows), 1, thread, threads), {0, heads});
}

device::StepForm KvStoreStep::form() const {
  if (tokens.per_row != 1) return {};
  const bool side_by_side = heads == 1 || (k.head_stride == head_dim && v.head_stride == head_dim);
  const auto operand = [&](const TokenRows& rows) {
    return device::StepAccess{.slot = rows.place.slot,
                              .offset = rows.place.offset,
                              .row_stride = rows.token_stride,
                              .by_column = side_by_side};
  };
  return {.rowwise = true,
          .columns = side_by_side ? heads * head_dim : 0,
          .unit = head_dim,
          .accesses = {operand(k), operand(v), {.slot = slots.slot, .offset = slots.offset, .row_stride = 1}}};
}

void KvStoreStep::run_rows(const HostFrame& frame, Range rows) const {
  store(frame, rows, {0, heads});
}

void KvStoreStep::run_columns(const HostFrame& frame, Range rows, std::span<const Range> columns) const {
  for (const Range& range : columns) store(frame, rows, {range.begin / head_dim, range.end / head_dim});
}

void KvStoreStep::store(const HostFrame& frame, Range rows, Range of_heads) const {
  TensorStore& store = *frame.stores[state.slot];
  const kernels::KvPageLayout layout = page_layout(store, heads, head_dim);
  const auto* slot_ids = at<const int32_t>(frame, slots);
  for (int64_t token = rows.begin, end; token < rows.end; token = end) {
    const int64_t slot = slot_ids[token];
    end = token + 1;
    if (slot < 0) continue;
    // Tokens of a prompt lie side by side in their page.
    const int64_t in_page = slot % store.block_size;
    while (end < rows.end && slot_ids[end] == slot + end - token && in_page + end - token < store.block_size) ++end;
    uint16_t* to = page(store, slot / store.block_size);
    for (int64_t head = of_heads.begin; head < of_heads.end; ++head) {
      layout.write_tokens(
          to, in_page, end - token, head,
          at<const uint16_t>(frame, k.place) + token * k.token_stride + head * k.head_stride, k.token_stride,
          at<const uint16_t>(frame, v.place) + token * v.token_stride + head * v.head_stride, v.token_stride);
    }
  }
}

std::string KvStoreStep::describe() const {
  return fmt::format("kv_store heads={} d={}", heads, head_dim);
}

}  // namespace spyre::attention
