// Log-probs as hosts take them: rows side by side in one array, and those of a prompt put together over its chunks.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/export.h"
#include "runner/step.h"

namespace spyre::platform {

// Rows of log-probs side by side, as wide as the widest request asked for: the token itself, then the most probable
// ones, descending. Cells past what a request asked for hold token 0 and -infinity.
struct SPYRE_API LogprobTable {
  int64_t rows = 0, width = 0;
  std::vector<int32_t> token_ids;  // [rows][width]
  std::vector<float> logprobs;     // [rows][width]
  std::vector<int32_t> ranks;      // [rows], of the token itself; 1 = the most probable; 0 in a row without log-probs

  LogprobTable() = default;
  LogprobTable(int64_t rows, int64_t width) : width(width) { resize(rows); }
  void resize(int64_t new_rows);  // new rows are without log-probs
  // REQUIRES: entry.top.size() < width.
  void set(int64_t row, const runner::TokenLogprob& entry);
};

// The log-probs of one prompt, while its chunks are computed. A preemption may score positions again, with the same
// result: what came first stays.
class PromptLogprobs {
 public:
  // |top| entries per position, -1 = the whole vocabulary.
  PromptLogprobs(int64_t prompt_length, int32_t top, int64_t vocab_size);

  // Of positions |start|, |start| + 1, ... What comes after a gap is not taken: a prefix hit has left out what is
  // before.
  void add(int64_t start, std::span<const runner::TokenLogprob> scores);
  bool complete() const { return table_.rows == prompt_length_ - 1; }
  int64_t next_position() const { return table_.rows + 1; }
  LogprobTable take() { return std::move(table_); }

 private:
  int64_t prompt_length_;
  LogprobTable table_;
};

}  // namespace spyre::platform
