#include "platform/logprob_table.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace spyre::platform {

void LogprobTable::resize(int64_t new_rows) {
  rows = new_rows;
  token_ids.resize(rows * width, 0);
  logprobs.resize(rows * width, -std::numeric_limits<float>::infinity());
  ranks.resize(rows, 0);
}

void LogprobTable::set(int64_t row, const runner::TokenLogprob& entry) {
  SPYRE_CHECK(std::ssize(entry.top) < width, "{} top entries in a row of {}", entry.top.size(), width);
  int32_t* token = token_ids.data() + row * width;
  float* logprob = logprobs.data() + row * width;
  *token = entry.token;
  *logprob = entry.logprob;
  for (const auto& [top_token, top_logprob] : entry.top) {
    *++token = top_token;
    *++logprob = top_logprob;
  }
  ranks[row] = entry.rank;
}

PromptLogprobs::PromptLogprobs(int64_t prompt_length, int32_t top, int64_t vocab_size)
    : prompt_length_(prompt_length), table_(0, 1 + (top < 0 ? vocab_size : std::min<int64_t>(top, vocab_size))) {}

void PromptLogprobs::add(int64_t start, std::span<const runner::TokenLogprob> scores) {
  if (start > next_position()) return;
  const int64_t again = std::min<int64_t>(next_position() - start, std::ssize(scores));
  int64_t row = table_.rows;
  table_.resize(row + std::ssize(scores) - again);
  for (const runner::TokenLogprob& score : scores.subspan(again)) table_.set(row++, score);
}

}  // namespace spyre::platform
