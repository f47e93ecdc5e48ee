#include "runner/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/vector_math.h"
#include "runner/random.h"

namespace spyre::runner {
namespace {

constexpr double kGreedyBelow = 1e-5;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

bool is_allowed(std::span<const uint32_t> allowed, int64_t token) {
  return allowed.empty() || ((allowed[token >> 5] >> (token & 31)) & 1u) != 0;
}

// The order of every ranking here, descending logits with ties by ascending id, as ascending integers. Negative floats
// order backwards by their bits, and adding +0 makes one zero of two.
uint64_t rank_key(float logit, int64_t token) {
  const uint32_t bits = std::bit_cast<uint32_t>(logit + 0.0f);
  const uint32_t descending = (bits >> 31) != 0 ? bits : ~bits & 0x7fffffffu;
  return uint64_t{descending} << 32 | static_cast<uint32_t>(token);
}

// Puts the |count| least keys in front, in order.
template <typename Iterator, typename Less>
void sort_front(Iterator begin, Iterator middle, Iterator end, Less less) {
  if (middle != end) std::nth_element(begin, middle, end, less);
  std::sort(begin, middle, less);
}

// The allowed token of the largest logit, the lowest id among equals.
int32_t highest_token(std::span<const float> logits, std::span<const uint32_t> allowed) {
  int32_t best = -1;
  float highest = kLowest;
  for (int64_t t = 0; t < std::ssize(logits); ++t) {
    if (logits[t] > highest && is_allowed(allowed, t)) {
      highest = logits[t];
      best = static_cast<int32_t>(t);
    }
  }
  if (best < 0) {
    throw_error(ErrorCode::kInvalidArgument, "no token of {} can be drawn: {}", logits.size(),
                allowed.empty() ? "every logit is -inf" : "the grammar mask allows none of finite logit");
  }
  return best;
}

void in_range(std::string_view field, double value, bool ok, std::string_view range) {
  if (!ok) throw_error(ErrorCode::kInvalidArgument, "{} is {}; it must be {}", field, value, range);
}

void check_logprobs(std::string_view field, const std::optional<int32_t>& value, int64_t vocab_size) {
  if (!value || (*value >= -1 && *value <= vocab_size)) return;
  throw_error(ErrorCode::kInvalidArgument, "{} is {}; it must be -1 (all) or 0 to the vocabulary size {}", field,
              *value, vocab_size);
}

}  // namespace

int32_t Sampler::sample(const RequestState& request, std::span<const float> logits, std::span<const uint32_t> allowed) {
  if (!allowed.empty() && std::ssize(allowed) * 32 < std::ssize(logits)) {
    throw_error(ErrorCode::kInvalidArgument, "the grammar row of {} words is shorter than the vocabulary of {}",
                allowed.size(), logits.size());
  }
  check_finite(logits);
  const SamplingParams& params = request.sampling;
  const int32_t best = highest_token(logits, allowed);
  if (params.temperature < kGreedyBelow) return best;

  candidates_.clear();
  for (int64_t t = 0; t < std::ssize(logits); ++t) {
    if (logits[t] > kLowest && is_allowed(allowed, t)) candidates_.push_back({rank_key(logits[t], t), logits[t], 0});
  }
  // min-p compares with the largest weight alone, so it may come after top-k, when fewer weights are left to compute.
  if (params.top_k > 0) keep_top_k(params.top_k);
  weigh(logits[best], params);
  if (params.top_p < 1) keep_top_p(params.top_p);

  double mass = 0;
  for (const Candidate& c : candidates_) mass += c.weight;
  const uint64_t key = params.seed ? *params.seed : text_key(default_seed_, request.id);
  const double target = uniform(key, static_cast<uint64_t>(request.draws)) * mass;
  double sum = 0;
  for (const Candidate& c : candidates_) {
    sum += c.weight;
    if (sum > target) return c.token();
  }
  return best;  // u * mass rounded up to the mass itself
}

void Sampler::keep_top_k(int64_t k) {
  if (k >= std::ssize(candidates_)) return;
  keys_.clear();
  for (const Candidate& c : candidates_) keys_.push_back(c.key);
  std::nth_element(keys_.begin(), keys_.begin() + (k - 1), keys_.end());
  // Its ties are kept: the upper half of a key is the logit alone.
  std::erase_if(candidates_, [last = keys_[k - 1] >> 32](const Candidate& c) { return c.key >> 32 > last; });
}

void Sampler::weigh(float highest, const SamplingParams& params) {
  const auto temperature = static_cast<float>(std::min(params.temperature, 1e30));  // past it all weights are 1
  for (Candidate& c : candidates_) c.weight = exp_f32((c.logit - highest) / temperature);
  const float least = static_cast<float>(params.min_p);
  std::erase_if(candidates_, [least](const Candidate& c) { return c.weight == 0 || c.weight < least; });
}

void Sampler::keep_top_p(double top_p) {
  double mass = 0;
  for (const Candidate& c : candidates_) mass += c.weight;
  // Sorted piece by piece: the head of the distribution nearly always holds top_p of it.
  const double wanted = top_p * mass;
  double before = 0;
  int64_t kept = 0, sorted = 0;
  for (const int64_t n = std::ssize(candidates_); kept < n && before < wanted; ++kept) {
    if (kept == sorted) {
      sorted = std::min(n, std::max<int64_t>(64, 4 * sorted));
      const auto begin = candidates_.begin();
      sort_front(begin + kept, begin + sorted, candidates_.end(),
                 [](const Candidate& a, const Candidate& b) { return a.key < b.key; });
    }
    before += candidates_[kept].weight;
  }
  candidates_.resize(kept);
  std::sort(candidates_.begin(), candidates_.end(),
            [](const Candidate& a, const Candidate& b) { return a.token() < b.token(); });
}

void check_finite(std::span<const float> logits) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  int32_t wrong = 0;  // counted without a branch, so that the loop is vectorised
  for (const float x : logits) wrong += !(x <= kLargest);
  if (wrong == 0) return;
  const auto first = std::find_if(logits.begin(), logits.end(), [](float x) { return !(x <= kLargest); });
  throw_error(ErrorCode::kUnsupported, "{} of {} logits are not finite; the first is {} at token {}", wrong,
              logits.size(), *first, first - logits.begin());
}

TokenLogprob token_logprob(std::span<const float> logits, int32_t token, int32_t top) {
  const int64_t vocab = std::ssize(logits);
  SPYRE_CHECK(token >= 0 && token < vocab && top >= -1, "token {} of {}, top {}", token, vocab, top);
  const float highest = *std::max_element(logits.begin(), logits.end());
  double mass = 0;
  for (const float x : logits) mass += exp_f32(x - highest);
  const float log_mass = log_f32(static_cast<float>(mass));
  const auto logprob = [&](int64_t t) { return (logits[t] - highest) - log_mass; };

  TokenLogprob result{.token = token, .logprob = logprob(token)};
  const float own = logits[token];
  for (int64_t t = 0; t < vocab; ++t) result.rank += logits[t] > own || (logits[t] == own && t < token);
  const int64_t count = top < 0 ? vocab : std::min<int64_t>(top, vocab);
  if (count == 0) return result;

  std::vector<uint64_t> keys(vocab);
  for (int64_t t = 0; t < vocab; ++t) keys[t] = rank_key(logits[t], t);
  sort_front(keys.begin(), keys.begin() + count, keys.end(), std::less<>());
  result.top.reserve(count);
  for (int64_t i = 0; i < count; ++i) {
    const auto t = static_cast<int32_t>(keys[i]);
    result.top.emplace_back(t, logprob(t));
  }
  return result;
}

void validate(const SamplingParams& params, int64_t vocab_size) {
  // A comparison with NaN is false, so each range is written as what is right.
  in_range("temperature", params.temperature, params.temperature >= 0 && std::isfinite(params.temperature),
           "a finite number of at least 0");
  in_range("top_p", params.top_p, params.top_p > 0 && params.top_p <= 1, "above 0 and at most 1");
  in_range("top_k", static_cast<double>(params.top_k), params.top_k >= -1, "-1 or 0 (all), or at least 1");
  in_range("min_p", params.min_p, params.min_p >= 0 && params.min_p <= 1, "from 0 to 1");
  in_range("max_tokens", static_cast<double>(params.max_tokens), params.max_tokens >= 0, "at least 0");
  check_logprobs("logprobs", params.logprobs, vocab_size);
  check_logprobs("prompt_logprobs", params.prompt_logprobs, vocab_size);
  for (const int32_t token : params.stop_token_ids) {
    if (token >= 0 && token < vocab_size) continue;
    throw_error(ErrorCode::kInvalidArgument, "stop token id {} is outside the vocabulary of {}", token, vocab_size);
  }
}

}  // namespace spyre::runner
