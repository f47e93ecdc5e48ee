#include "runner/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string_view>

#include "base/error.h"
#include "base/vector_math.h"
#include "runner/random.h"

namespace spyre::runner {
namespace {

constexpr double kGreedyBelow = 1e-5;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Masses of top-p as integers: sums of them are exact. A row of 2^23 weights of at most 1 fits.
uint64_t fixed_mass(double mass) {
  return static_cast<uint64_t>(mass * 0x1p40);
}

[[noreturn]] void refuse_empty(const RequestState& request, std::span<const float> logits, bool masked) {
  const bool all_lost = std::all_of(logits.begin(), logits.end(), [](float x) { return x == kLowest; });
  std::string_view reason = "every logit is -inf";
  if (!all_lost && request.edits.none()) {
    reason = "the grammar mask allows none of finite logit";
  } else if (!all_lost) {
    reason = masked ? "the grammar mask, allowed_token_ids, bad_words and min_tokens leave none"
                    : "allowed_token_ids, bad_words and min_tokens leave none";
  }
  throw_error(ErrorCode::kInvalidArgument, "no token of {} can be drawn: {}", logits.size(), reason);
}

}  // namespace

std::span<const float> Sampler::edited(const RequestState& request, std::span<const float> logits,
                                       std::span<const uint32_t> allowed) {
  edited_.assign(logits.begin(), logits.end());
  if (!allowed.empty()) mask_logits(allowed, edited_);
  if (!request.edits.none()) {
    request.edits.apply(request.sampling, std::span(request.tokens).last(request.edits.generated()), edited_);
  }
  return edited_;
}

int32_t Sampler::sample(const RequestState& request, std::span<const float> logits, std::span<const uint32_t> allowed) {
  if (!allowed.empty() && std::ssize(allowed) * 32 < std::ssize(logits)) {
    throw_error(ErrorCode::kInvalidArgument, "the grammar row of {} words is shorter than the vocabulary of {}",
                allowed.size(), logits.size());
  }
  raw_.scan(logits);
  row_ = &raw_;
  if (!allowed.empty() || !request.edits.none()) {
    row_ = &edited_row_;
    row_->scan(edited(request, logits, allowed));
  }
  const int32_t best = row_->first_highest();
  if (best < 0) refuse_empty(request, logits, !allowed.empty());
  const SamplingParams& params = request.sampling;
  if (params.temperature < kGreedyBelow) return best;

  const uint64_t key = params.seed ? *params.seed : text_key(default_seed_, request.id);
  const double u = uniform(key, static_cast<uint64_t>(request.draws), static_cast<uint32_t>(params.choice));
  const auto inverse = static_cast<float>(1 / std::min(params.temperature, 1e30));  // past it all weights are 1
  // min-p compares with the largest weight alone, so it may come after top-k, when fewer weights are left to compute.
  candidates_.clear();
  if (params.top_k > 0) {
    keep_top_k(params, inverse);
  } else {
    row_->weigh(inverse);
    if (params.min_p == 0) {
      if (params.top_p < 1) cut_top_p(inverse, params.top_p);
      return draw_row(u);
    }
    keep_min_p(static_cast<float>(params.min_p));
  }
  if (params.top_p < 1) {
    double mass = 0;
    for (const Candidate& c : candidates_) mass += c.weight;
    std::erase_if(candidates_,
                  [last = last_of_top_p(0, params.top_p * mass)](const Candidate& c) { return c.key > last; });
  }
  return draw_candidate(u);
}

TokenLogprob TokenSampler::logprob(std::span<const float> logits, int32_t token, int32_t top) {
  return token_logprob(logits, token, top);
}

TokenLogprob Sampler::logprob(std::span<const float> logits, int32_t token, int32_t top) {
  SPYRE_CHECK(raw_.logits().data() == logits.data() && raw_.logits().size() == logits.size());
  return token_logprob(raw_, token, top);
}

void Sampler::keep_top_k(const SamplingParams& params, float inverse) {
  const int64_t k = params.top_k;
  const std::span<const float> logits = row_->logits();
  for (const int32_t t : row_->tokens_between(row_->threshold(k))) {
    candidates_.push_back({rank_key(logits[t], t), logits[t]});  // for now the logit stands in the place of the weight
  }
  if (k < std::ssize(candidates_)) {
    keys_.clear();
    for (const Candidate& c : candidates_) keys_.push_back(c.key);
    std::nth_element(keys_.begin(), keys_.begin() + (k - 1), keys_.end());
    // Its ties are kept: the upper half of a key is the logit alone.
    std::erase_if(candidates_, [last = keys_[k - 1] >> 32](const Candidate& c) { return c.key >> 32 > last; });
  }
  const auto least = static_cast<float>(params.min_p);
  for (Candidate& c : candidates_) c.weight = exp_f32((c.weight - row_->highest()) * inverse);
  std::erase_if(candidates_, [least](const Candidate& c) { return c.weight == 0 || c.weight < least; });
}

void Sampler::keep_min_p(float min_p) {
  // Weights fall with logits but for their last bits; blocks are left out on the safe side of that.
  const std::span<const float> weights = row_->weights(), logits = row_->logits();
  for (int64_t b = 0; b < std::ssize(row_->block_mass()); ++b) {
    if (row_->block_mass()[b] < min_p * 0.99f) continue;  // a weight of min_p would alone be more
    const int64_t end = std::min((b + 1) * kVocabBlock, std::ssize(weights));
    for (int64_t t = b * kVocabBlock; t < end; ++t) {
      if (weights[t] >= min_p && weights[t] > 0) candidates_.push_back({rank_key(logits[t], t), weights[t]});
    }
  }
}

// top-p of the whole row: brackets the least logit that is kept, [low, high), until few lie in between, and ranks
// those. It begins at the top, where a look at few blocks will mostly do.
void Sampler::cut_top_p(float inverse, double top_p) {
  constexpr int64_t kFew = 192;  // ranking them costs about one more look
  constexpr float kFiniteLowest = std::numeric_limits<float>::lowest();
  const double wanted = top_p * row_->weighed_mass();
  float low = 0, high = std::numeric_limits<float>::infinity();
  VocabTail from_low, from_high;
  for (float distance = 3;; distance *= 1.5f) {
    low = distance < 100 ? std::max(row_->highest() - distance / inverse, kFiniteLowest) : kFiniteLowest;
    from_low = row_->tail(low);
    if (from_low.mass >= wanted || low == kFiniteLowest) break;
    high = low;
    from_high = from_low;
  }
  while (from_low.count - from_high.count > kFew) {
    const float top = std::min(high, row_->highest()), middle = low + (top - low) / 2;
    if (!(middle > low && middle < top)) break;  // all equal, or too far apart for fp32
    const VocabTail from_middle = row_->tail(middle);
    if (from_middle.mass >= wanted) {
      low = middle;
      from_low = from_middle;
    } else {
      high = middle;
      from_high = from_middle;
    }
  }
  for (const int32_t t : row_->tokens_between(low, high)) {
    candidates_.push_back({rank_key(row_->logits()[t], t), row_->weights()[t]});
  }
  if (!candidates_.empty()) row_->cut_after(static_cast<int32_t>(last_of_top_p(from_high.mass, wanted)));
}

// The key of the last candidate by rank that has less than |wanted| before it, |before| being what ranks before all.
uint64_t Sampler::last_of_top_p(double before, double wanted) {
  // By halves: either the upper half by rank holds what is wanted, or all of it is kept and the rest is asked for.
  const auto by_rank = [](const Candidate& a, const Candidate& b) { return a.key < b.key; };
  const uint64_t until = std::max<uint64_t>(1, fixed_mass(wanted));
  uint64_t sum = fixed_mass(before);
  selection_.assign(candidates_.begin(), candidates_.end());
  auto begin = selection_.begin(), end = selection_.end();
  while (end - begin > 16) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, by_rank);
    uint64_t half = 0;
    for (auto c = begin; c != middle; ++c) half += fixed_mass(c->weight);
    if (sum + half >= until) {
      end = middle;
    } else {
      sum += half;
      begin = middle;
    }
  }
  std::sort(begin, end, by_rank);
  uint64_t last = begin->key;
  for (; begin != end && sum < until; ++begin) {
    last = begin->key;
    sum += fixed_mass(begin->weight);
  }
  return last;
}

int32_t Sampler::draw_candidate(double u) const {
  double mass = 0;
  for (const Candidate& c : candidates_) mass += c.weight;
  const double target = u * mass;
  double sum = 0;
  for (const Candidate& c : candidates_) {
    sum += c.weight;
    if (sum > target) return c.token();
  }
  return row_->first_highest();  // u * mass rounded up to the mass itself
}

int32_t Sampler::draw_row(double u) const {
  const std::span<const float> blocks = row_->block_mass(), weights = row_->weights();
  const double target = u * row_->weighed_mass();
  double sum = 0;
  for (int64_t b = 0; b < std::ssize(blocks); ++b) {
    if (sum + blocks[b] <= target) {
      sum += blocks[b];
      continue;
    }
    int64_t drawn = -1;  // the block's last token of weight when its parts, in this order, sum up to a little less
    const int64_t end = std::min((b + 1) * kVocabBlock, std::ssize(weights));
    for (int64_t t = b * kVocabBlock; t < end && sum <= target; ++t) {
      sum += weights[t];
      if (weights[t] > 0) drawn = t;
    }
    return static_cast<int32_t>(drawn);
  }
  return row_->first_highest();
}

void check_finite(std::span<const float> logits) {
  VocabRow().scan(logits);
}

TokenLogprob token_logprob(VocabRow& row, int32_t token, int32_t top) {
  const std::span<const float> logits = row.logits();
  const int64_t vocab = std::ssize(logits);
  SPYRE_CHECK(token >= 0 && token < vocab && top >= -1, "token {} of {}, top {}", token, vocab, top);
  const float log_mass = log_f32(static_cast<float>(row.mass()));
  const auto logprob = [&](int64_t t) { return (logits[t] - row.highest()) - log_mass; };

  TokenLogprob result{.token = token, .logprob = logprob(token), .rank = static_cast<int32_t>(row.rank(token))};
  const int64_t count = top < 0 ? vocab : std::min<int64_t>(top, vocab);
  if (count == 0) return result;

  std::vector<uint64_t> keys;
  const float least = row.threshold(count);
  if (least == kLowest) {
    keys.reserve(vocab);
    for (int64_t t = 0; t < vocab; ++t) keys.push_back(rank_key(logits[t], t));
  } else {
    for (const int32_t t : row.tokens_between(least)) keys.push_back(rank_key(logits[t], t));
  }
  std::partial_sort(keys.begin(), keys.begin() + count, keys.end());
  result.top.reserve(count);
  for (int64_t i = 0; i < count; ++i) {
    const auto t = static_cast<int32_t>(keys[i]);
    result.top.emplace_back(t, logprob(t));
  }
  return result;
}

TokenLogprob token_logprob(std::span<const float> logits, int32_t token, int32_t top) {
  VocabRow row;
  row.scan(logits);
  return token_logprob(row, token, top);
}

}  // namespace spyre::runner
