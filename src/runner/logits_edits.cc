#include "runner/logits_edits.h"

#include <algorithm>
#include <limits>

namespace spyre::runner {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// A logit of -infinity is a token that cannot be drawn: nothing brings it back, and nothing finite becomes one.
template <typename F>
void edit(float& logit, F f) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  if (logit > kLowest) logit = std::clamp(f(logit), -kLargest, kLargest);
}

bool ends_with(std::span<const int32_t> tokens, std::span<const int32_t> tail) {
  return tokens.size() >= tail.size() && std::equal(tail.rbegin(), tail.rend(), tokens.rbegin());
}

}  // namespace

void mask_logits(std::span<const uint32_t> allowed, std::span<float> logits) {
  for (size_t begin = 0; begin < logits.size(); begin += 32) {
    const uint32_t word = allowed[begin / 32];
    if (word == ~uint32_t{0}) continue;
    const std::span<float> part = logits.subspan(begin, std::min<size_t>(32, logits.size() - begin));
    for (size_t i = 0; i < part.size(); ++i) part[i] = ((word >> i) & 1u) != 0 ? part[i] : kLowest;
  }
}

LogitsEdits::LogitsEdits(const SamplingParams& params, std::span<const int32_t> prompt, std::span<const int32_t> output,
                         int64_t vocab_size)
    : generated_(std::ssize(output)) {
  endings_ = params.stop_token_ids;
  if (!params.ignore_eos) endings_.insert(endings_.end(), params.eos_token_ids.begin(), params.eos_token_ids.end());
  // An id from a tokenizer's configuration may lie beyond the model's vocabulary: it is never drawn.
  std::erase_if(endings_, [vocab_size](int32_t token) { return token < 0 || token >= vocab_size; });
  if (!endings_.empty()) min_tokens_ = params.min_tokens;

  if (params.allowed_token_ids) {
    allowed_.assign((vocab_size + 31) / 32, 0);
    for (const int32_t token : *params.allowed_token_ids) allowed_[token >> 5] |= 1u << (token & 31);
  }
  const bool repetition = params.repetition_penalty != 1;
  penalised_ = repetition || params.presence_penalty != 0 || params.frequency_penalty != 0;
  always_ = !allowed_.empty() || !params.bad_words.empty() || !params.logit_bias.empty();
  if (!penalised_) return;

  std::vector<int32_t> sorted;
  const auto add = [&](std::span<const int32_t> tokens, int32_t generated) {
    sorted.assign(tokens.begin(), tokens.end());
    std::sort(sorted.begin(), sorted.end());
    std::vector<Seen> merged;
    merged.reserve(seen_.size() + sorted.size());
    auto old = seen_.begin();
    for (const int32_t token : sorted) {
      while (old != seen_.end() && old->token < token) merged.push_back(*old++);
      if (old != seen_.end() && old->token == token) merged.push_back(*old++);
      if (merged.empty() || merged.back().token != token) merged.push_back({token, 0});
      merged.back().generated += generated;
    }
    merged.insert(merged.end(), old, seen_.end());
    seen_ = std::move(merged);
  };
  if (repetition) add(prompt, 0);
  add(output, 1);
  // Room for what is to come, so that a step allocates nothing; very long answers grow it now and then.
  constexpr int64_t kMostReserved = 4096;
  seen_.reserve(seen_.size() + std::clamp<int64_t>(params.max_tokens, 0, kMostReserved));
}

void LogitsEdits::append(int32_t token) {
  ++generated_;
  if (!penalised_) return;
  const auto at =
      std::lower_bound(seen_.begin(), seen_.end(), token, [](const Seen& seen, int32_t t) { return seen.token < t; });
  if (at != seen_.end() && at->token == token) {
    ++at->generated;
  } else {
    seen_.insert(at, {token, 1});
  }
}

bool LogitsEdits::none() const {
  return !always_ && generated_ >= min_tokens_ && seen_.empty();
}

void LogitsEdits::apply(const SamplingParams& params, std::span<const int32_t> output, std::span<float> logits) const {
  if (!allowed_.empty()) mask_logits(allowed_, logits);
  for (const std::vector<int32_t>& word : params.bad_words) {
    if (ends_with(output, std::span(word).first(word.size() - 1))) logits[word.back()] = kLowest;
  }
  if (generated_ < min_tokens_) {
    for (const int32_t token : endings_) logits[token] = kLowest;
  }
  for (const auto& [token, bias] : params.logit_bias) {
    edit(logits[token], [bias](float x) { return x + bias; });
  }
  if (penalised_) penalise(params, logits);
}

void LogitsEdits::penalise(const SamplingParams& params, std::span<float> logits) const {
  const auto repetition = static_cast<float>(std::clamp(params.repetition_penalty, 1e-30, 1e30));
  const auto frequency = static_cast<float>(params.frequency_penalty);
  const auto presence = static_cast<float>(params.presence_penalty);
  for (const Seen& seen : seen_) {
    edit(logits[seen.token], [&](float x) {
      x = x > 0 ? x / repetition : x * repetition;
      if (seen.generated == 0) return x;
      x -= frequency * static_cast<float>(seen.generated);
      return x - presence;
    });
  }
}

}  // namespace spyre::runner
