// validate(): every field of SamplingParams against its range and the model's vocabulary.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "runner/sampler.h"

namespace spyre::runner {
namespace {

// Every bad word is compared with the history in every step.
constexpr int64_t kMostBadWords = 1024, kLongestBadWord = 1024;

void in_range(std::string_view field, double value, bool ok, std::string_view range) {
  if (!ok) throw_error(ErrorCode::kInvalidArgument, "{} is {}; it must be {}", field, value, range);
}

void in_range(std::string_view field, int64_t value, bool ok, std::string_view range) {
  if (!ok) throw_error(ErrorCode::kInvalidArgument, "{} is {}; it must be {}", field, value, range);
}

void check_logprobs(std::string_view field, const std::optional<int32_t>& value, int64_t vocab_size) {
  if (!value || (*value >= -1 && *value <= vocab_size)) return;
  throw_error(ErrorCode::kInvalidArgument, "{} is {}; it must be -1 (all) or 0 to the vocabulary size {}", field,
              *value, vocab_size);
}

void check_tokens(std::string_view field, std::span<const int32_t> tokens, int64_t vocab_size) {
  for (const int32_t token : tokens) {
    if (token >= 0 && token < vocab_size) continue;
    throw_error(ErrorCode::kInvalidArgument, "{}: token {} is outside the vocabulary of {}", field, token, vocab_size);
  }
}

void check_bias(const std::vector<std::pair<int32_t, float>>& bias, int64_t vocab_size) {
  std::vector<int32_t> tokens;
  for (const auto& [token, value] : bias) {
    if (!std::isfinite(value)) {
      throw_error(ErrorCode::kInvalidArgument, "logit_bias: the bias of token {} is {}; it must be a finite number",
                  token, value);
    }
    tokens.push_back(token);
  }
  check_tokens("logit_bias", tokens, vocab_size);
  std::sort(tokens.begin(), tokens.end());
  const auto twice = std::adjacent_find(tokens.begin(), tokens.end());
  if (twice != tokens.end()) {
    throw_error(ErrorCode::kInvalidArgument, "logit_bias: token {} is named twice", *twice);
  }
}

void check_bad_words(const std::vector<std::vector<int32_t>>& words, int64_t vocab_size) {
  if (std::ssize(words) > kMostBadWords) {
    throw_error(ErrorCode::kInvalidArgument, "bad_words has {} entries; at most {} are taken", words.size(),
                kMostBadWords);
  }
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].empty() || std::ssize(words[i]) > kLongestBadWord) {
      throw_error(ErrorCode::kInvalidArgument, "bad_words: entry {} has {} tokens; it must have 1 to {}", i,
                  words[i].size(), kLongestBadWord);
    }
    check_tokens("bad_words", words[i], vocab_size);
  }
}

}  // namespace

void validate(const SamplingParams& params, int64_t vocab_size) {
  // A comparison with NaN is false, so each range is written as what is right.
  const auto within = [](double x, double low, double high) { return x >= low && x <= high; };
  constexpr double kMax = std::numeric_limits<double>::max();
  in_range("temperature", params.temperature, within(params.temperature, 0, kMax), "a finite number of at least 0");
  in_range("top_p", params.top_p, params.top_p > 0 && params.top_p <= 1, "above 0 and at most 1");
  in_range("top_k", params.top_k, params.top_k >= -1, "-1 or 0 (all), or at least 1");
  in_range("min_p", params.min_p, within(params.min_p, 0, 1), "from 0 to 1");
  in_range("presence_penalty", params.presence_penalty, within(params.presence_penalty, -2, 2), "from -2 to 2");
  in_range("frequency_penalty", params.frequency_penalty, within(params.frequency_penalty, -2, 2), "from -2 to 2");
  in_range("repetition_penalty", params.repetition_penalty,
           params.repetition_penalty > 0 && params.repetition_penalty <= kMax, "a finite number above 0");
  in_range("max_tokens", params.max_tokens, params.max_tokens >= 0, "at least 0");
  in_range("min_tokens", params.min_tokens, params.min_tokens >= 0, "at least 0");
  if (params.min_tokens > params.max_tokens) {
    throw_error(ErrorCode::kInvalidArgument, "min_tokens is {}; it must be at most max_tokens, {}", params.min_tokens,
                params.max_tokens);
  }
  in_range("choice", int64_t{params.choice}, params.choice >= 0, "at least 0");
  check_logprobs("logprobs", params.logprobs, vocab_size);
  check_logprobs("prompt_logprobs", params.prompt_logprobs, vocab_size);
  check_tokens("stop_token_ids", params.stop_token_ids, vocab_size);
  check_bias(params.logit_bias, vocab_size);
  if (params.allowed_token_ids) {
    if (params.allowed_token_ids->empty()) {
      throw_error(ErrorCode::kInvalidArgument, "allowed_token_ids is empty: no token could be drawn");
    }
    check_tokens("allowed_token_ids", *params.allowed_token_ids, vocab_size);
  }
  check_bad_words(params.bad_words, vocab_size);
}

}  // namespace spyre::runner
