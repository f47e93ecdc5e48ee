#include "plugins/spyre/attention/buckets.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace spyre::attention {
namespace {

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Ascending, each once, entries above |limit| dropped, |limit| last.
std::vector<int64_t> normalised(std::vector<int64_t> ladder, int64_t limit, const char* what) {
  for (int64_t entry : ladder) {
    if (entry < 1) throw_error(ErrorCode::kInvalidArgument, "{} bucket {} is less than 1", what, entry);
  }
  std::sort(ladder.begin(), ladder.end());
  ladder.erase(std::unique(ladder.begin(), ladder.end()), ladder.end());
  ladder.erase(std::upper_bound(ladder.begin(), ladder.end(), limit), ladder.end());
  if (ladder.empty() || ladder.back() < limit) ladder.push_back(limit);
  return ladder;
}

}  // namespace

std::optional<int64_t> round_up_in(const std::vector<int64_t>& ladder, int64_t n) {
  const auto found = std::lower_bound(ladder.begin(), ladder.end(), n);
  if (found == ladder.end()) return std::nullopt;
  return *found;
}

Bucketer::Bucketer(const BucketOptions& options) : block_size_(options.block_size) {
  const int64_t limit = options.max_model_len;
  std::vector<int64_t> kv = options.kv_buckets;
  if (kv.empty()) {
    int64_t start = 1;
    while (start < options.block_size) start *= 2;  // 192 starts at 256
    for (int64_t length = start; length < limit; length *= 2) kv.push_back(length);
  }
  for (int64_t length : normalised(std::move(kv), limit, "KV")) blocks_.push_back(ceil_div(length, block_size_));
  blocks_.erase(std::unique(blocks_.begin(), blocks_.end()), blocks_.end());

  std::vector<int64_t> query = options.query_buckets;
  if (query.empty()) {
    query.push_back(1);
    const int64_t step = std::min<int64_t>(512, options.max_num_batched_tokens);
    for (int64_t q = step; q < options.max_num_batched_tokens; q += step) query.push_back(q);
  }
  query_ = normalised(std::move(query), options.max_num_batched_tokens, "query");

  const int64_t most = std::min(options.max_num_seqs, options.max_num_batched_tokens);
  if (most < kLeastBatchedSequences) return;
  for (int64_t n = kLeastBatchedSequences; n < most; n *= 2) sequences_.push_back(n);
  sequences_.push_back(most);
}

Variant Bucketer::variant(int64_t query_len, int64_t kv_blocks) const {
  const std::optional<int64_t> query = round_up_in(query_, query_len), blocks = round_up_in(blocks_, kv_blocks);
  SPYRE_CHECK(query && blocks, "query {} of {}, blocks {} of {}", query_len, query_.back(), kv_blocks, blocks_.back());
  return {.query = *query, .blocks = *blocks};
}

std::optional<Variant> Bucketer::batched_variant(int64_t sequences, int64_t kv_blocks) const {
  if (sequences < kLeastBatchedSequences || sequences_.empty()) return std::nullopt;
  const std::optional<int64_t> lanes = round_up_in(sequences_, sequences), blocks = round_up_in(blocks_, kv_blocks);
  SPYRE_CHECK(lanes && blocks, "sequences {} of {}, blocks {} of {}", sequences, sequences_.back(), kv_blocks,
              blocks_.back());
  return Variant{.query = 1, .blocks = *blocks, .sequences = *lanes};
}

std::vector<Variant> Bucketer::all_variants() const {
  std::vector<Variant> variants;
  for (size_t q = 0; q < query_.size(); ++q) {
    // The shortest query that rounds up to this bucket must fit into the keys.
    const int64_t shortest = q == 0 ? 1 : query_[q - 1] + 1;
    for (int64_t blocks : blocks_) {
      if (shortest <= blocks * block_size_) variants.push_back({.query = query_[q], .blocks = blocks});
    }
  }
  for (int64_t sequences : sequences_) {
    for (int64_t blocks : blocks_) variants.push_back({.query = 1, .blocks = blocks, .sequences = sequences});
  }
  return variants;
}

std::vector<int64_t> fine_ladder(int64_t limit) {
  std::vector<int64_t> ladder;
  for (int64_t t = 1; t < limit;
       t += std::max<int64_t>(1, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(t))) / 4)) {
    ladder.push_back(t);
  }
  ladder.push_back(limit);
  return ladder;
}

std::vector<int64_t> token_ladder(int64_t max_num_batched_tokens, int64_t max_num_seqs,
                                  const std::vector<int64_t>& given) {
  if (!given.empty()) {
    std::vector<int64_t> ladder = normalised(given, max_num_batched_tokens, "token");
    if (ladder.size() > kMaxTokenBuckets) {
      throw_error(ErrorCode::kInvalidArgument,
                  "{} token buckets: every one is compiled at start, and at most {} may be", ladder.size(),
                  kMaxTokenBuckets);
    }
    return ladder;
  }
  const int64_t c = std::min<int64_t>(max_num_batched_tokens, 512);
  const int64_t n = std::min(max_num_seqs, c);
  std::vector<int64_t> ladder{c, n};
  for (int64_t t = 1; t < n; t *= 2) ladder.push_back(t);
  return normalised(std::move(ladder), max_num_batched_tokens, "token");
}

}  // namespace spyre::attention
