// The ladders of static shapes that attention programs are compiled for, and which variant a sequence lands on.
//
// One bucketer is shared by the metadata builder and warm-up, so that what is recorded and what is dispatched cannot
// drift. Immutable; free to share between threads.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace spyre::attention {

// A compiled attention program: rows of the query and KV blocks it is shaped for. With |sequences| > 0 it is the
// batched decode program: one query row of each of so many sequences, over a grid of blocks and sequences.
struct Variant {
  int64_t query = 1;
  int64_t blocks = 1;
  int64_t sequences = 0;
  auto operator<=>(const Variant&) const = default;
};

// Fewer sequences than this decode one by one: as in the original.
inline constexpr int64_t kLeastBatchedSequences = 4;

struct BucketOptions {
  int64_t block_size = 128;
  int64_t max_model_len = 0;
  int64_t max_num_batched_tokens = 0;
  int64_t max_num_seqs = 0;            // of a batched decode
  std::vector<int64_t> kv_buckets;     // KV lengths; empty = powers of two from the block size
  std::vector<int64_t> query_buckets;  // empty = 1 and multiples of min(512, max_num_batched_tokens)
};

class Bucketer {
 public:
  // Given ladders are sorted and freed of doubles; an entry < 1 throws Error(kInvalidArgument) naming it; entries above
  // the limit are dropped and the limit is appended.
  explicit Bucketer(const BucketOptions& options);

  const std::vector<int64_t>& query_ladder() const { return query_; }
  const std::vector<int64_t>& block_ladder() const { return blocks_; }  // KV blocks
  // Of batched decode: powers of two from 4 and max_num_seqs; empty when that is less.
  const std::vector<int64_t>& sequence_ladder() const { return sequences_; }

  // Rounds up. Throws Error(kInternal) above the top: the scheduler's limits keep lengths below it.
  Variant variant(int64_t query_len, int64_t kv_blocks) const;
  // The same for a step of |sequences| that decode together, the longest with |kv_blocks| blocks; none when there are
  // too few.
  std::optional<Variant> batched_variant(int64_t sequences, int64_t kv_blocks) const;
  // Every variant that a step can land on: pairs whose smallest real query exceeds the keys are left out.
  std::vector<Variant> all_variants() const;

 private:
  int64_t block_size_;
  std::vector<int64_t> query_, blocks_, sequences_;
};

// Rounds |n| up in an ascending ladder; none above the top.
std::optional<int64_t> round_up_in(const std::vector<int64_t>& ladder, int64_t n);

inline constexpr size_t kMaxTokenBuckets = 128;

// 1, 2, 3 and 4, then four equal steps an octave (5, 6, 7, 8, 10, 12, ...) up to |limit|: no row count is padded by
// more than a fifth of its bucket.
std::vector<int64_t> fine_ladder(int64_t limit);

// The ladder of token buckets for the body: {c, n} and the powers of two below n, c = min(max_num_batched_tokens, 512),
// n = min(max_num_seqs, c); or |given|, made ascending, its top being the step's token budget, at most
// kMaxTokenBuckets long (128 compile in a second for two small layers, 512 take minutes).
std::vector<int64_t> token_ladder(int64_t max_num_batched_tokens, int64_t max_num_seqs,
                                  const std::vector<int64_t>& given);

}  // namespace spyre::attention
