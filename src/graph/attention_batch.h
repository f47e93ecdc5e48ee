// What an attention operator must know of a step beside q: which rows belong to which sequence, and where each
// sequence's keys lie. Built once per step by the worker, shared by all layers, read-only during the step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace spyre::graph {

// Spans point into memory of the worker and live as long as the step.
struct AttentionBatch {
  int64_t block_size = 0;                // tokens per KV block
  std::span<const int32_t> query_start;  // [sequences + 1]: rows of sequence i are query_start[i] .. query_start[i + 1]
  std::span<const int32_t> seq_lens;     // [sequences]: tokens in the cache after this step's store
  std::span<const int32_t> block_table;  // [sequences][max_blocks]: KV block ids; entries past the length are unused
  int64_t max_blocks = 0;
  bool causal = true;

  int64_t sequences() const { return static_cast<int64_t>(seq_lens.size()); }
  // Position in its sequence of the first query row of sequence i.
  int64_t context(int64_t i) const { return seq_lens[i] - (query_start[i + 1] - query_start[i]); }
  std::span<const int32_t> blocks(int64_t i) const { return block_table.subspan(i * max_blocks, max_blocks); }
};

// The keys [first, last) that the query at |position| of a sequence of |length| tokens may see. A window of w > 0 shows
// the w positions up to and including its own; without a causal mask also the w - 1 after it.
struct KeyRange {
  int64_t first = 0, last = 0;
};
inline KeyRange visible_keys(int64_t position, int64_t length, bool causal, int64_t window) {
  KeyRange keys{0, causal ? std::min(position + 1, length) : length};
  if (window > 0) {
    keys.first = std::max<int64_t>(0, position - window + 1);
    if (!causal && window < length - position) keys.last = position + window;
  }
  return keys;
}

}  // namespace spyre::graph
