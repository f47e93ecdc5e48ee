// What one card of a group holds of a model: its tensors with the card's padding. Weights are divided as the original
// divides them: whole heads, MLP columns, vocabulary rows; norms and tables of positions are on every card.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plugins/spyre/sizing/model_shape.h"

namespace spyre::sizing {

inline constexpr int64_t kElementBytes = 2;  // DL16
inline constexpr int64_t kHeadRowsMultiple =
    2048;  // rows of the output head on a card: a stick for each core (original)

struct CardTensor {
  std::string kind;  // embedding, positions, attention, mlp, norms, head
  std::string name;
  int64_t bytes = 0;  // on the card, of one of |count|
  int64_t count = 1;  // how many equal ones: one a layer
};

// The sizes of one card's part. A padded size is what the card's programs have.
struct CardShare {
  int64_t cards = 1;
  int64_t heads = 0, kv_heads = 0;  // of this card; KV heads are repeated where there are more cards than heads
  int64_t head_size = 0;            // padded: rotary halves are whole sticks, other heads are
  int64_t hidden = 0;               // padded to whole sticks
  int64_t mlp = 0, shared_mlp = 0;  // columns of this card, padded
  int64_t vocab_rows = 0;           // of the output head, padded
  int64_t embedding_rows = 0;
  std::vector<CardTensor> tensors;

  int64_t weight_bytes() const;
  int64_t tensor_count() const;
  int64_t kv_bytes_per_token(int64_t layers) const { return 2 * layers * layer_k_bytes_per_token(); }
  int64_t layer_k_bytes_per_token() const { return kv_heads * head_size * kElementBytes; }
};

// Why |cards| cards cannot divide the model, or nothing.
std::string why_not_divisible(const ModelShape& shape, int64_t cards);

// |positions| is the length that tables of positions are built for. REQUIRES: why_not_divisible() has nothing to say.
CardShare share_of_card(const ModelShape& shape, int64_t cards, int64_t positions);

}  // namespace spyre::sizing
