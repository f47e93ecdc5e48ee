// How the KV cache of a layer lies in card memory: K and V are two tensors of one form each. A value type; free to
// share.
//
//   token-major  [slots, kv heads, head size], the slot axis outermost: a token's store is one contiguous run, and the
//                scatter hits the rows it means (the default layout would put the slot axis inside). A page has to be
//                permuted to [kv heads, block, head size] on every read.
//   head-major   [blocks, kv heads, block size, head size]: a page arrives as the matmuls want it. The transpose is in
//                the write instead: the heads of a token lie a block apart, so each has an index of its own.
//
// The host's pages have an order of their own (kernels/kv_pages.h), whatever the card's layout: the bits of a model do
// not depend on it.
#pragma once

#include <cstdint>
#include <string_view>

#include "plugins/spyre/device/tensor.h"

namespace spyre::attention {

enum class KvLayout : uint8_t { kTokenMajor, kHeadMajor };

std::string_view to_string(KvLayout layout);  // as SPYRE_ATTN_KV_LAYOUT takes it

// What only one of the layouts has: the batched decode gathers whole pages of unfolded caches.
inline bool has_batched_decode(KvLayout layout) {
  return layout == KvLayout::kTokenMajor;
}

// K, or V, of one layer on the card. |heads| and |head| are the axes of the state's type. Dimension 1 of the result is
// |heads| and its last one |head|, in both layouts.
device::TensorSpec kv_spec(KvLayout layout, DType dtype, int64_t num_blocks, int64_t block_size,
                           const device::Axis& heads, const device::Axis& head);

// Which layout a spec of kv_spec() has.
KvLayout kv_layout_of(const device::TensorSpec& spec);

// Where |head| of the token in |slot| goes in a head-major cache that is seen as rows of one head:
// (block * kv_heads + head) * block_size + offset; -1 for slot -1.
int64_t kv_write_row(int64_t slot, int64_t head, int64_t kv_heads, int64_t block_size);

}  // namespace spyre::attention
