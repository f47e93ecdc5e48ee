// The host order of a KV page: how keys and values of 16 bit lie in memory so that attention is two small matrix
// products over sticks. Only the functions here and the attention kernels know it.
//
// A page holds `block_size` tokens (a multiple of 64) of every KV head, as [head][group of 64 tokens]{K group, V
// group}:
//   K group (transposed: one query row times a stick of 64 tokens)
//     f16        [D][64 tokens]
//     bf16 pair  [ceil(D / 2)][64 tokens][2]
//     bf16 tile  the same, D padded to a multiple of 32
//   V group (token rows of 64-dim sticks)
//     f16        [ceil(D / 64)][64 tokens][64]
//     bf16       [ceil(D / 64)][32 token pairs][64][2]
// That is: a K group is a weight panel (panels.h) of [D, 64 tokens], and a stick of a V group one of [64 tokens, 64].
// D is the logical head size. Lanes past D are never written: the owner of the memory zeroes a page once, when it is
// allocated, and never again; a page that is reused may hold a stranger's tokens (attention selects them out).
//
// A layout is a plain value. The memory belongs to the caller, 64-byte aligned for speed. Two threads may write
// different (slot, head) of one page at the same time.
#pragma once

#include <cstdint>

#include "base/dot_orders.h"
#include "base/dtype.h"
#include "plugins/spyre/kernels/attention.h"

namespace spyre::kernels {

class KvPageLayout {
 public:
  // throws kInvalidArgument unless block_size is a positive multiple of 64, kv_heads >= 1, 1 <= head_dim <=
  // kMaxHeadDim, and (dtype, order) is (f16, sequential), (bf16, pair) or (bf16, tile).
  KvPageLayout(DType dtype, DotOrder order, int64_t block_size, int64_t kv_heads, int64_t head_dim);

  DType dtype() const { return dtype_; }
  DotOrder order() const { return order_; }
  int64_t block_size() const { return block_size_; }
  int64_t kv_heads() const { return kv_heads_; }
  int64_t head_dim() const { return head_dim_; }
  int64_t groups() const { return block_size_ / kGroupTokens; }
  int64_t page_words() const { return kv_heads_ * groups() * (k_words_ + v_words_); }
  int64_t page_bytes() const { return page_words() * 2; }

  // Stores one token of one head: head_dim words of K and of V.
  void write(uint16_t* page, int64_t slot, int64_t head, const uint16_t* k, const uint16_t* v) const;
  // The same for `count` >= 1 tokens in slots [slot, slot + count) of the page; token i has its words at k + i *
  // k_token_stride and v + i * v_token_stride. Long runs go through register transposes.
  void write_tokens(uint16_t* page, int64_t slot, int64_t count, int64_t head, const uint16_t* k,
                    int64_t k_token_stride, const uint16_t* v, int64_t v_token_stride) const;
  // The reverse, for tests and for moving pages to another layout.
  void read(const uint16_t* page, int64_t slot, int64_t head, uint16_t* k, uint16_t* v) const;
  // What attention reads: tokens [64 * group, 64 * group + 64) of the page.
  KvGroup group(const uint16_t* page, int64_t head, int64_t group) const;

 private:
  int64_t group_offset(int64_t head, int64_t group) const;
  int64_t k_index(int64_t token, int64_t d) const;  // in a K group
  int64_t v_index(int64_t token, int64_t d) const;  // in a V group

  DType dtype_;
  DotOrder order_;
  int64_t block_size_, kv_heads_, head_dim_;
  int64_t k_words_, v_words_;  // of one group
};

}  // namespace spyre::kernels
