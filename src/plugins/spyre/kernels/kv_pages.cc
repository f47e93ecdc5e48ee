#include "plugins/spyre/kernels/kv_pages.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "plugins/spyre/kernels/panels.h"

namespace spyre::kernels {
namespace {

int64_t round_up(int64_t x, int64_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}

}  // namespace

KvPageLayout::KvPageLayout(DType dtype, DotOrder order, int64_t block_size, int64_t kv_heads, int64_t head_dim)
    : dtype_(dtype), order_(order), block_size_(block_size), kv_heads_(kv_heads), head_dim_(head_dim) {
  if (block_size < kGroupTokens || block_size % kGroupTokens != 0) {
    throw_error(ErrorCode::kInvalidArgument, "KV block size {} is not a positive multiple of {}", block_size,
                kGroupTokens);
  }
  if (kv_heads < 1) throw_error(ErrorCode::kInvalidArgument, "a KV page of {} heads", kv_heads);
  if (head_dim < 1 || head_dim > kMaxHeadDim) {
    throw_error(ErrorCode::kInvalidArgument, "KV head size {} is outside 1..{}", head_dim, kMaxHeadDim);
  }
  const bool f16 = dtype == DType::kF16 && order == DotOrder::kSequential;
  const bool bf16 = dtype == DType::kBF16 && order != DotOrder::kSequential;
  if (!f16 && !bf16) {
    throw_error(ErrorCode::kInvalidArgument, "no KV page for {} in the {} order", to_string(dtype), to_string(order));
  }
  const int64_t multiple = order == DotOrder::kTile ? 32 : order == DotOrder::kPair ? 2 : 1;
  k_words_ = round_up(head_dim, multiple) * kGroupTokens;
  v_words_ = round_up(head_dim, 64) * kGroupTokens;
}

int64_t KvPageLayout::group_offset(int64_t head, int64_t group) const {
  return (head * groups() + group) * (k_words_ + v_words_);
}

int64_t KvPageLayout::k_index(int64_t token, int64_t d) const {
  if (order_ == DotOrder::kSequential) return d * kGroupTokens + token;
  return (d / 2 * kGroupTokens + token) * 2 + d % 2;
}

int64_t KvPageLayout::v_index(int64_t token, int64_t d) const {
  const int64_t stick = d / 64 * (64 * kGroupTokens);
  if (order_ == DotOrder::kSequential) return stick + token * 64 + d % 64;
  return stick + (token / 2 * 64 + d % 64) * 2 + token % 2;
}

void KvPageLayout::write(uint16_t* page, int64_t slot, int64_t head, const uint16_t* k, const uint16_t* v) const {
  const int64_t token = slot % kGroupTokens;
  uint16_t* k_group = page + group_offset(head, slot / kGroupTokens);
  uint16_t* v_group = k_group + k_words_;
  if (order_ == DotOrder::kSequential) {
    for (int64_t d = 0; d < head_dim_; ++d) k_group[d * kGroupTokens + token] = k[d];
    for (int64_t d = 0; d < head_dim_; d += 64) {
      const int64_t count = head_dim_ - d < 64 ? head_dim_ - d : 64;
      std::memcpy(v_group + v_index(token, d), v + d, static_cast<size_t>(count) * 2);
    }
    return;
  }
  for (int64_t d = 0; d < head_dim_; ++d) {
    k_group[k_index(token, d)] = k[d];
    v_group[v_index(token, d)] = v[d];
  }
}

void KvPageLayout::write_tokens(uint16_t* page, int64_t slot, int64_t count, int64_t head, const uint16_t* k,
                                int64_t k_token_stride, const uint16_t* v, int64_t v_token_stride) const {
  SPYRE_CHECK(slot >= 0 && count >= 1 && slot + count <= block_size_, "slots {}+{} of a page of {}", slot, count,
              block_size_);
  while (count > 0) {
    const int64_t token = slot % kGroupTokens, tokens = std::min(count, kGroupTokens - token);
    uint16_t* k_group = page + group_offset(head, slot / kGroupTokens);
    write_panel(order_, SourceOrder::kOutIn, k, k_token_stride, {0, head_dim_, token, tokens}, k_group);
    for (int64_t d = 0; d < head_dim_; d += 64) {
      uint16_t* stick = k_group + k_words_ + d * kGroupTokens;
      write_panel(order_, SourceOrder::kInOut, v + d, v_token_stride,
                  {token, tokens, 0, std::min<int64_t>(head_dim_ - d, 64)}, stick);
    }
    k += tokens * k_token_stride;
    v += tokens * v_token_stride;
    slot += tokens;
    count -= tokens;
  }
}

void KvPageLayout::read(const uint16_t* page, int64_t slot, int64_t head, uint16_t* k, uint16_t* v) const {
  const int64_t token = slot % kGroupTokens;
  const KvGroup from = group(page, head, slot / kGroupTokens);
  for (int64_t d = 0; d < head_dim_; ++d) {
    k[d] = from.k[k_index(token, d)];
    v[d] = from.v[v_index(token, d)];
  }
}

KvGroup KvPageLayout::group(const uint16_t* page, int64_t head, int64_t group) const {
  const uint16_t* k = page + group_offset(head, group);
  return {k, k + k_words_};
}

}  // namespace spyre::kernels
