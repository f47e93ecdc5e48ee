#include "plugins/spyre/sizing/card_share.h"

#include <fmt/format.h>

#include <algorithm>

#include "plugins/spyre/device/layout.h"

namespace spyre::sizing {
namespace {

using device::round_up;

constexpr int64_t kStick = device::kStickBytes / kElementBytes;  // elements

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// A rotary head is padded behind each half; another one only behind its end.
int64_t padded_head(const ModelShape& shape) {
  return round_up(shape.head_size, shape.rotary ? 2 * kStick : kStick);
}

class ShareBuilder {
 public:
  ShareBuilder(const ModelShape& shape, int64_t cards, int64_t positions) : shape_(shape), positions_(positions) {
    share_.cards = cards;
    share_.heads = shape.heads / cards;
    share_.kv_heads = std::max<int64_t>(1, shape.kv_heads / cards);
    share_.head_size = padded_head(shape);
    share_.hidden = round_up(shape.hidden, kStick);
    share_.mlp = round_up(shape.mlp, kStick * cards) / cards;
    share_.shared_mlp = shape.shared_mlp > 0 ? round_up(shape.shared_mlp, kStick * cards) / cards : 0;
    share_.embedding_rows = cards == 1 ? shape.vocab : ceil_div(round_up(shape.vocab, kStick), cards);
    share_.vocab_rows = shape.encoder ? 0 : round_up(share_.embedding_rows, kHeadRowsMultiple);
  }

  CardShare build() {
    ends();
    attention();
    mlp();
    norms();
    return std::move(share_);
  }

 private:
  void add(const char* kind, const char* name, int64_t rows, int64_t columns, int64_t count = 1) {
    share_.tensors.push_back({kind, name, rows * round_up(columns, kStick) * kElementBytes, count});
  }
  void vector(const char* kind, const char* name, int64_t size, int64_t count) { add(kind, name, 1, size, count); }

  void ends() {
    add("embedding", "embedding", share_.embedding_rows, share_.hidden);
    if (!shape_.rotary) add("positions", "positions", shape_.positions, share_.hidden);
    if (shape_.token_types > 0) add("positions", "token types", shape_.token_types, share_.hidden);
    // [positions, 2, 2, half a head]
    if (shape_.rotary) add("positions", "rotary cache", positions_ * 4, share_.head_size / 2);
    // A tied head has a copy of its own: the table is gathered by rows, the head multiplied in columns.
    if (!shape_.encoder) add("head", "lm_head", share_.hidden, share_.vocab_rows);
  }

  void attention() {
    const int64_t q = share_.heads * share_.head_size, kv = share_.kv_heads * share_.head_size;
    add("attention", "qkv_proj", share_.hidden, q + 2 * kv, shape_.layers);
    add("attention", "o_proj", q, share_.hidden, shape_.layers);
    if (shape_.qkv_bias) vector("attention", "qkv bias", q + 2 * kv, shape_.layers);
    if (shape_.output_bias) vector("attention", "o bias", share_.hidden, shape_.layers);
    if (shape_.head_norms) vector("attention", "head norms", share_.head_size, 2 * shape_.layers);
  }

  void matrices(int64_t width, int64_t count) {
    const int64_t up = (shape_.gated_mlp ? 2 : 1) * width;
    add("mlp", "up", share_.hidden, up, count);
    add("mlp", "down", width, share_.hidden, count);
    if (!shape_.mlp_bias) return;
    vector("mlp", "up bias", up, count);
    vector("mlp", "down bias", share_.hidden, count);
  }

  void mlp() {
    matrices(share_.mlp, shape_.layers * std::max<int64_t>(1, shape_.experts));
    if (shape_.experts > 0) add("mlp", "router", share_.hidden, shape_.experts, shape_.layers);
    if (share_.shared_mlp > 0) matrices(share_.shared_mlp, shape_.layers);
  }

  void norms() { vector("norms", "norms", share_.hidden, (2 * shape_.layers + 1) * (shape_.rms_norm ? 1 : 2)); }

  const ModelShape& shape_;
  int64_t positions_;
  CardShare share_;
};

}  // namespace

int64_t CardShare::weight_bytes() const {
  int64_t bytes = 0;
  for (const CardTensor& tensor : tensors) bytes += tensor.bytes * tensor.count;
  return bytes;
}

int64_t CardShare::tensor_count() const {
  int64_t count = 0;
  for (const CardTensor& tensor : tensors) count += tensor.count;
  return count;
}

std::string why_not_divisible(const ModelShape& shape, int64_t cards) {
  if (shape.heads % cards != 0) return fmt::format("{} heads are no multiple of {} cards", shape.heads, cards);
  if (shape.kv_heads % cards != 0 && cards % shape.kv_heads != 0) {
    return fmt::format("{} KV heads neither divide among {} cards nor repeat evenly on them", shape.kv_heads, cards);
  }
  return "";
}

CardShare share_of_card(const ModelShape& shape, int64_t cards, int64_t positions) {
  return ShareBuilder(shape, cards, positions).build();
}

}  // namespace spyre::sizing
