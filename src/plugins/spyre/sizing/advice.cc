#include "plugins/spyre/sizing/advice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "plugins/spyre/sizing/sizing.h"

namespace spyre::sizing {
namespace {

using platform::SizingQuestion;

std::vector<int64_t> card_counts(const ModelShape& shape) {
  std::vector<int64_t> counts;
  for (int64_t cards = 1; cards <= kMostCards; ++cards) {
    if (why_not_divisible(shape, cards).empty()) counts.push_back(cards);
  }
  return counts;
}

// The largest of 0 .. |most| for which |holds|; holding is monotonous.
int64_t largest(int64_t most, const std::function<bool(int64_t)>& holds) {
  int64_t low = 0, high = most;
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (holds(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// The same question asked with other numbers.
class Asker {
 public:
  Asker(const ModelShape& shape, const SizingQuestion& question, int64_t pool_bytes)
      : shape_(shape), question_(question), pool_bytes_(pool_bytes) {}

  bool fits(int64_t cards, int64_t batch, int64_t context) const {
    const CardShare share = share_of_card(shape_, cards, *question_.context);
    const KvDemand kv{.sequences = shape_.encoder ? 0 : batch, .length = context, .block_size = question_.block_size};
    return fit_card(shape_, share, kv, pool_bytes_).fits();
  }
  int64_t most_sequences(int64_t cards) const {
    const int64_t bound = std::min(kMostSequences, kMostTokens / *question_.context);
    return largest(bound, [&](int64_t n) { return n == 0 || fits(cards, n, *question_.context); });
  }
  // In whole blocks.
  int64_t longest_context(int64_t cards) const {
    const int64_t block = question_.block_size,
                  bound = std::min(shape_.positions, kMostTokens / question_.batch) / block;
    return block * largest(bound, [&](int64_t n) { return n == 0 || fits(cards, question_.batch, n * block); });
  }

 private:
  const ModelShape& shape_;
  const SizingQuestion& question_;
  int64_t pool_bytes_;
};

void say_what_would_fit(const ModelShape& shape, const SizingQuestion& q, const Asker& asker,
                        std::vector<std::string>& lines) {
  const bool weights_fit = asker.fits(q.cards, 1, std::min<int64_t>(q.block_size, *q.context));
  if (weights_fit && !shape.encoder) {
    if (const int64_t n = asker.most_sequences(q.cards); n > 0) {
      lines.push_back(fmt::format("fewer sequences: {} of {} tokens fit", n, *q.context));
    }
    if (const int64_t context = asker.longest_context(q.cards); context > 0) {
      lines.push_back(fmt::format("a shorter context: {} tokens for each of {} sequences fit", context, q.batch));
    }
  }
  for (const int64_t cards : card_counts(shape)) {
    if (cards <= q.cards || !asker.fits(cards, q.batch, *q.context)) continue;
    lines.push_back(fmt::format("more cards: {} hold it ({} heads and {} KV heads on each)", cards, shape.heads / cards,
                                std::max<int64_t>(1, shape.kv_heads / cards)));
    return;
  }
  if (!weights_fit) lines.emplace_back("the weights alone do not fit: a smaller model, or weights of fewer bits");
}

}  // namespace

std::string possible_cards(const ModelShape& shape) {
  return fmt::format("{}", fmt::join(card_counts(shape), ", "));
}

std::vector<std::string> advice(const ModelShape& shape, const SizingQuestion& q, const CardFit& fit) {
  std::vector<std::string> lines;
  const Asker asker(shape, q, fit.pool_bytes);
  if (fit.pool_bytes > kPoolBytes) {
    lines.push_back(fmt::format("fewer rows at once: {} bytes of intermediates, of which {} have room", fit.pool_bytes,
                                kPoolBytes));
  }
  if (!fit.fits()) {
    say_what_would_fit(shape, q, asker, lines);
  } else if (!shape.encoder) {
    lines.push_back(fmt::format("room for {} sequences of {} tokens, or {} tokens for each of {}",
                                asker.most_sequences(q.cards), *q.context, asker.longest_context(q.cards), q.batch));
  }
  if (q.cards > shape.kv_heads && !shape.encoder) {
    lines.push_back(fmt::format("{} KV heads on {} cards: each is kept {} times; the KV cache no longer shrinks",
                                shape.kv_heads, q.cards, q.cards / shape.kv_heads));
  }
  if (q.cards > 4) {
    lines.push_back(
        fmt::format("{} cards are not below one switch: sums between them go through the host's memory", q.cards));
  }
  return lines;
}

}  // namespace spyre::sizing
