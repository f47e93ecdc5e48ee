#include "cli/bench_mix.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

#include "base/error.h"

namespace spyre::cli {
namespace {

// The first ids are special tokens in most vocabularies.
constexpr int64_t kSpecialIds = 16;

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  double uniform() { return (static_cast<double>(random_() >> 11) + 0.5) * 0x1p-53; }  // never 0 or 1
  double normal() {                                                                    // Box-Muller, one of the two
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }
  int64_t length(double median, double sigma, int64_t most) {
    const double value = median * std::exp(sigma * normal());
    return std::clamp<int64_t>(std::llround(std::min(value, 1e9)), 1, most);
  }
  int32_t id(int64_t vocabulary) {
    const int64_t low = vocabulary > 2 * kSpecialIds ? kSpecialIds : 0;
    return static_cast<int32_t>(low + static_cast<int64_t>(random_() % static_cast<uint64_t>(vocabulary - low)));
  }
  double gap(double rate) { return -std::log(uniform()) / rate; }

 private:
  std::mt19937_64 random_;
};

void check(const LengthMix& mix, int64_t count, int64_t vocabulary, int64_t max_model_len, double rate) {
  const auto positive = [](const char* what, double value) {
    if (!(value > 0) || !(value <= 1e9)) {
      throw_error(ErrorCode::kInvalidArgument, "{} {} is not above 0 and at most 1e9", what, value);
    }
  };
  positive("median length of prompts", mix.prompt_median);
  positive("median length of answers", mix.output_median);
  for (const double sigma : {mix.prompt_sigma, mix.output_sigma}) {
    if (!(sigma >= 0) || !(sigma <= 5)) throw_error(ErrorCode::kInvalidArgument, "sigma {} is not from 0 to 5", sigma);
  }
  if (mix.max_prompt < 1 || mix.max_output < 1 || count < 1 || vocabulary < 1 || max_model_len < 2) {
    throw_error(ErrorCode::kInvalidArgument,
                "{} requests, prompts up to {}, answers up to {}, {} token ids, sequences up to {}: too small", count,
                mix.max_prompt, mix.max_output, vocabulary, max_model_len);
  }
  if (!(rate >= 0) || !(rate <= 1e6)) throw_error(ErrorCode::kInvalidArgument, "rate {} is not from 0 to 1e6", rate);
}

}  // namespace

std::vector<MixedRequest> draw_requests(const LengthMix& mix, int64_t count, uint64_t seed, int64_t vocabulary,
                                        int64_t max_model_len, double rate) {
  check(mix, count, vocabulary, max_model_len, rate);
  Draw draw(seed);
  std::vector<MixedRequest> requests(static_cast<size_t>(count));
  double now = 0;
  for (MixedRequest& r : requests) {
    const int64_t prompt =
        draw.length(mix.prompt_median, mix.prompt_sigma, std::min(mix.max_prompt, max_model_len - 1));
    r.output_tokens =
        draw.length(mix.output_median, mix.output_sigma, std::min(mix.max_output, max_model_len - prompt));
    for (int64_t i = 0; i < prompt; ++i) r.prompt_ids.push_back(draw.id(vocabulary));
    if (rate > 0) r.at = now += draw.gap(rate);
  }
  return requests;
}

}  // namespace spyre::cli
