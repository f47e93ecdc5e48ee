#include "plugins/spyre/device/dl16_math.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/vector_math.h"

namespace spyre::device {
namespace {

constexpr double kLn2 = 0.69314718055994531;
constexpr int64_t kColumns = 64;  // of a matmul that are computed together

// What a tie adds below the kept bits: the whole half, or the half less one and, for even and odd, the last kept bit.
template <Dl16Ties kTies>
uint32_t round_up_bits(uint32_t bits) {
  if constexpr (kTies == Dl16Ties::kAway) return 0x2000u;
  if constexpr (kTies == Dl16Ties::kEven) return 0x1fffu + ((bits >> 14) & 1u);
  if constexpr (kTies == Dl16Ties::kOdd) return 0x1fffu + (~(bits >> 14) & 1u);
  return 0x1fffu;
}

// As round_to_dl16(), quick where neither end of the range is near.
template <Dl16Ties kTies>
float rounded(float x, const Dl16Rules& rules) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffu;
  constexpr uint32_t kLow = 97u << 23, kHigh = 157u << 23;  // 2^-30, 2^30
  if (magnitude - kLow < kHigh - kLow) return std::bit_cast<float>((bits + round_up_bits<kTies>(bits)) & ~0x3fffu);
  return round_to_dl16(x, rules);
}

// Partial sums of kColumns columns at a time.
using Columns = std::array<float, kColumns>;

void multiply_add(Columns& sums, float x, const float* w) {
  for (int64_t j = 0; j < kColumns; ++j) sums[j] += x * w[j];
}

template <Dl16Ties kTies>
void multiply_add_rounded(Columns& sums, float x, const float* w, const Dl16Rules& rules) {
  for (int64_t j = 0; j < kColumns; ++j) sums[j] = rounded<kTies>(sums[j] + x * w[j], rules);
}

template <Dl16Ties kTies>
void add_rounded(Columns& sums, const Columns& more, const Dl16Rules& rules) {
  for (int64_t j = 0; j < kColumns; ++j) sums[j] = rounded<kTies>(sums[j] + more[j], rules);
}

// One row of a matmul against a block of columns, |w| being [k][kColumns].
template <Dl16Ties kTies>
class RowOfColumns {
 public:
  RowOfColumns(const Dl16Matmul& call, const Dl16Settings& settings) : call_(call), settings_(settings) {}

  Columns run(const float* x, const float* w) const {
    Columns total{};
    for (int64_t k = 0, core = 0; k < call_.k; ++core) {
      const Columns partial = of_core(x, w, k, (core + 1) * call_.k_per_core);
      if (settings_.accumulate_chunk == 0) {
        for (int64_t j = 0; j < kColumns; ++j) total[j] += partial[j];
      } else {
        add_rounded<kTies>(total, partial, settings_.rules);
      }
    }
    for (float& sum : total) sum = rounded<kTies>(sum, settings_.rules);
    return total;
  }

 private:
  // From k on, as far as it lies before card element |end|.
  Columns of_core(const float* x, const float* w, int64_t& k, int64_t end) const {
    Columns sums{};
    if (settings_.accumulate_chunk == 0) {
      for (; k < call_.k && call_.k_card[k] < end; ++k) multiply_add(sums, x[k], w + k * kColumns);
      return sums;
    }
    while (k < call_.k && call_.k_card[k] < end) {
      const int64_t chunk = call_.k_card[k] / settings_.accumulate_chunk;
      Columns of_chunk{};
      for (; k < call_.k && call_.k_card[k] < end && call_.k_card[k] / settings_.accumulate_chunk == chunk; ++k) {
        multiply_add_rounded<kTies>(of_chunk, x[k], w + k * kColumns, settings_.rules);
      }
      add_rounded<kTies>(sums, of_chunk, settings_.rules);
    }
    return sums;
  }

  const Dl16Matmul& call_;
  const Dl16Settings& settings_;
};

template <Dl16Ties kTies>
void multiply(const Dl16Matmul& call, const Dl16Settings& settings) {
  const RowOfColumns<kTies> row_of(call, settings);
  std::vector<float> block(static_cast<size_t>(call.k * kColumns));
  for (int64_t first = 0; first < call.n; first += kColumns) {
    const int64_t width = std::min(kColumns, call.n - first);
    for (int64_t k = 0; k < call.k; ++k) {
      const float* w = call.w + k * call.k_stride + first * call.n_stride;
      float* to = block.data() + k * kColumns;
      for (int64_t j = 0; j < width; ++j) to[j] = w[j * call.n_stride];
      std::fill(to + width, to + kColumns, 0.0f);
    }
    for (int64_t row = 0; row < call.rows; ++row) {
      const Columns y = row_of.run(call.x + row * call.k, block.data());
      std::copy_n(y.begin(), width, call.out + row * call.n + first);
    }
  }
}

}  // namespace

Dl16Math::Dl16Math(const Dl16Settings& settings) : settings_(settings), guard_(constant(-25 * kLn2)) {
  SPYRE_CHECK(settings.accumulate_chunk >= 0 && settings.exp_floor >= 0, "chunk {}, floor {}",
              settings.accumulate_chunk, settings.exp_floor);
}

float Dl16Math::exp(float x) const {
  if (settings_.exp_guard && x <= guard_) return 0;
  const float y = exp_f32(x);
  return round(y < settings_.exp_floor ? settings_.exp_floor : y);
}

float Dl16Math::exp_fp32(float x) const {
  if (settings_.exp_guard && x <= static_cast<float>(-25 * kLn2)) return 0;
  const float y = exp_f32(x);
  return y < settings_.fp32_exp_floor ? settings_.fp32_exp_floor : y;
}

// term(i, so_far) is the sum with element i added to it, before any rounding.
template <typename Term>
float Dl16Math::accumulate(int64_t n, std::span<const int64_t> card, Term&& term) const {
  float total = 0;
  if (settings_.accumulate_chunk == 0) {
    for (int64_t i = 0; i < n; ++i) total = term(i, total);
    return total;
  }
  const auto chunk_of = [&](int64_t i) { return (card.empty() ? i : card[i]) / settings_.accumulate_chunk; };
  for (int64_t i = 0; i < n;) {
    float of_chunk = 0;
    for (const int64_t chunk = chunk_of(i); i < n && chunk_of(i) == chunk; ++i) of_chunk = round(term(i, of_chunk));
    total = round(total + of_chunk);
  }
  return total;
}

float Dl16Math::sum(std::span<const float> x, std::span<const int64_t> card) const {
  return round(accumulate(std::ssize(x), card, [&](int64_t i, float so_far) { return so_far + x[i]; }));
}

Dl16Math::Moments Dl16Math::exx2(std::span<const float> x, std::span<const int64_t> card) const {
  const auto n = static_cast<float>(x.size());
  const float sum = accumulate(std::ssize(x), card, [&](int64_t i, float so_far) { return so_far + x[i]; });
  const float squares = accumulate(std::ssize(x), card, [&](int64_t i, float so_far) { return so_far + x[i] * x[i]; });
  return {round(sum / n), round(squares / n)};
}

float Dl16Math::dot(std::span<const float> a, const float* b, int64_t b_stride) const {
  return round(accumulate(std::ssize(a), {}, [&](int64_t i, float so_far) { return so_far + a[i] * b[i * b_stride]; }));
}

void Dl16Math::matmul(const Dl16Matmul& call) const {
  SPYRE_CHECK(std::ssize(call.k_card) == call.k && call.k_per_core > 0, "K {} in cores of {}", call.k, call.k_per_core);
  switch (settings_.rules.ties) {
    case Dl16Ties::kAway:
      return multiply<Dl16Ties::kAway>(call, settings_);
    case Dl16Ties::kEven:
      return multiply<Dl16Ties::kEven>(call, settings_);
    case Dl16Ties::kZero:
      return multiply<Dl16Ties::kZero>(call, settings_);
    case Dl16Ties::kOdd:
      return multiply<Dl16Ties::kOdd>(call, settings_);
  }
}

void Dl16Math::softmax(std::span<const float> x, std::span<float> y, std::span<const int64_t> card) const {
  float largest = x[0];
  for (const float element : x) largest = maximum_f32(largest, element);
  for (size_t i = 0; i < x.size(); ++i) y[i] = exp(round(x[i] - largest));
  const float total = sum(y, card);
  for (float& element : y) element = round(element / total);
}

void Dl16Math::rms_norm(std::span<const float> x, std::span<const float> weight, float eps, std::span<float> y,
                        std::span<const int64_t> card) const {
  const float scale = round(1.0f / std::sqrt(exx2(x, card).mean_of_squares + eps));
  for (size_t i = 0; i < x.size(); ++i) y[i] = round(round(x[i] * scale) * weight[i]);
}

void Dl16Math::layer_norm(std::span<const float> x, std::span<const float> weight, std::span<const float> bias,
                          float eps, std::span<float> y, std::span<const int64_t> card) const {
  const Moments moments = exx2(x, card);
  // The variance of two rounded moments can come out below zero.
  const float variance = std::max(moments.mean_of_squares - moments.mean * moments.mean, 0.0f);
  const float scale = round(1.0f / std::sqrt(variance + eps));
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = round(round(round(round(x[i] - moments.mean) * scale) * weight[i]) + bias[i]);
  }
}

// x / 2 * (1 + tanh(x * (c0 + c1 x^2))), function by function.
float Dl16Math::gelu_tanh(float x) const {
  const float c0 = constant(math::kGeluTanhScale), c1 = constant(math::kGeluTanhScale * math::kGeluTanhCube);
  const float inner = round(round(round(round(x * x) * c1) + c0) * x);
  return round(round(x * 0.5f) * round(round(tanh_f32(inner)) + 1.0f));
}

}  // namespace spyre::device
