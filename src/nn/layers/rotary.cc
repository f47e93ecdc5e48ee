#include "nn/layers/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/half.h"
#include "formats/bytes.h"

namespace spyre::nn {

void store_float(HostTensor& tensor, int64_t index, float x) {
  switch (tensor.dtype) {
    case DType::kF32:
      tensor.as<float>()[index] = x;
      return;
    case DType::kF16:
      tensor.as<uint16_t>()[index] = f32_to_f16(x);
      return;
    case DType::kBF16:
      tensor.as<uint16_t>()[index] = f32_to_bf16(x);
      return;
    default:
      SPYRE_CHECK(false, "dtype {}", to_string(tensor.dtype));
  }
}

namespace {

// theta^(2i/d) in the fp32 steps of transformers: the exponent is rounded, then the power. The frequencies are part of
// what a model was trained with, and more exact ones would rotate by other angles: by 3e-3 at position 10,000.
float period(double theta, int64_t i, int64_t head_size) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_size);
  return static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
}

// Llama 3.1 scaling: wavelengths beyond the original context are slowed by |factor|, short ones kept, and a band
// between is interpolated. Formula as in transformers' modeling_rope_utils, in fp32 as there.
float llama3_scaled(float frequency, const formats::RopeConfig& rope) {
  const double original = static_cast<double>(rope.original_max_position);
  const auto factor = static_cast<float>(rope.factor);
  const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
  if (wavelength < static_cast<float>(original / rope.high_freq_factor)) return frequency;
  if (wavelength > static_cast<float>(original / rope.low_freq_factor)) return frequency / factor;
  const float smooth = (static_cast<float>(original) / wavelength - static_cast<float>(rope.low_freq_factor)) /
                       static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

// YaRN (Peng et al., 2023): dimensions that turn more than beta_fast times within the original context are kept, those
// that turn less than beta_slow times are divided by |factor|, and between the two dimensions a ramp blends. The ramp
// is computed in fp32, as in transformers.
std::vector<float> yarn_frequencies(const formats::RopeConfig& rope, int64_t head_size) {
  const auto d = static_cast<double>(head_size);
  const auto dimension_of = [&](double turns) {
    return d * std::log(static_cast<double>(rope.original_max_position) / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double low = dimension_of(rope.beta_fast), high = dimension_of(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, d - 1);
  if (low == high) high += 0.001;
  std::vector<float> frequencies(head_size / 2);
  for (int64_t i = 0; i < head_size / 2; ++i) {
    const float unscaled = period(rope.theta, i, head_size);
    const float ramp = (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float kept = 1.0f - std::clamp(ramp, 0.0f, 1.0f);
    const float divided = 1.0f / (static_cast<float>(rope.factor) * unscaled);
    frequencies[i] = divided * (1.0f - kept) + 1.0f / unscaled * kept;
  }
  return frequencies;
}

}  // namespace

std::vector<float> RotaryEmbedding::frequencies() const {
  std::vector<float> f = inverse_frequencies(options_.rope, options_.head_size);
  const std::vector<float>& divisors = options_.frequency_divisors;
  SPYRE_CHECK(divisors.empty() || divisors.size() == f.size(), "{} divisors", divisors.size());
  for (size_t i = 0; i < divisors.size(); ++i) f[i] /= divisors[i];
  return f;
}

std::vector<float> RotaryEmbedding::inverse_frequencies(const formats::RopeConfig& rope, int64_t head_size) {
  if (rope.type == "yarn") return yarn_frequencies(rope, head_size);
  std::vector<float> frequencies(head_size / 2);
  for (int64_t i = 0; i < head_size / 2; ++i) {
    float f = 1.0f / period(rope.theta, i, head_size);
    if (rope.type == "llama3") {
      f = llama3_scaled(f, rope);
    } else if (rope.type == "linear") {
      f /= static_cast<float>(rope.factor);
    } else if (rope.type != "default") {
      throw_error(ErrorCode::kUnsupported, "rope scaling type '{}' is not built; known: default, linear, llama3, yarn",
                  formats::printable(rope.type));
    }
    frequencies[i] = f;
  }
  return frequencies;
}

std::pair<float, float> RotaryEmbedding::cos_sin(int64_t position, float inverse_frequency) const {
  const float angle = static_cast<float>(position) * inverse_frequency;
  const auto factor = static_cast<float>(options_.rope.attention_factor);
  return {static_cast<float>(std::cos(static_cast<double>(angle))) * factor,
          static_cast<float>(std::sin(static_cast<double>(angle))) * factor};
}

void RotaryEmbedding::check_table(int64_t bytes_per_position) const {
  if (options_.head_size < 2 || options_.head_size % 2 != 0) {
    throw_error(ErrorCode::kUnsupported, "rotary embedding of heads of {}: the size must be even", options_.head_size);
  }
  if (options_.max_positions > kMaxTableBytes / bytes_per_position) {
    throw_error(ErrorCode::kResourceExhausted,
                "rotary table: {} positions x {} bytes are more than {} bytes; give a smaller max_model_len",
                options_.max_positions, bytes_per_position, kMaxTableBytes);
  }
}

void RotaryEmbedding::build_cache() {
  const int64_t d = options_.head_size, half = d / 2;
  check_table(d * static_cast<int64_t>(size_of(options_.dtype)));
  HostTensor cache = HostTensor::allocate(options_.dtype, {options_.max_positions, d});
  const std::vector<float> inverse = frequencies();
  for (int64_t p = 0; p < options_.max_positions; ++p) {
    for (int64_t i = 0; i < half; ++i) {
      const auto [c, s] = cos_sin(p, inverse[i]);
      store_float(cache, p * d + i, c);
      store_float(cache, p * d + half + i, s);
    }
  }
  cache_ = add_parameter({.name = options_.path + ".cos_sin_cache",
                          .type = graph::Type::tensor(options_.dtype, std::vector<int64_t>{options_.max_positions, d}),
                          .buffer = std::move(cache)});
}

Value RotaryEmbedding::gather(Tracer& t, Value positions) const {
  return t.gather_rows(t.parameter(*cache_), positions);
}

Value RotaryEmbedding::apply(Tracer& t, Value x, Value rows) const {
  return t.op("rotary", {x, rows});
}

}  // namespace spyre::nn
