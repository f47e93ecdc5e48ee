// The card's arithmetic on DL16 values, as far as it is known: what an operator computes and where it rounds when the
// device runs in DL16 (docs/numerics.md, "DL16"). Values are held as fp32, in which every DL16 number is exact; a
// result is rounded to DL16 at each rounding point.
//
// Marks: H stated by the card's owner or by several sources, M one good source, L second hand, INF worked out here, UNK
// not known. What is L, INF or UNK is a field of Dl16Settings where a choice can matter.
//
// Immutable; any thread. The thread must hold ScopedFlushDenormals.
#pragma once

#include <cstdint>
#include <span>

#include "base/dl16.h"

namespace spyre::device {

struct Dl16Settings {
  Dl16Rules rules;
  // exp never gives less, even of -infinity: 2^-24 (L); masked softmax weights of 2e-5 to 5e-5 were seen (M). Of fp32:
  // 2^-17 (M).
  float exp_floor = 0x1p-24f;
  float fp32_exp_floor = 0x1p-17f;
  // The compiler guards exp: where(x <= -25 ln 2, 0, exp(x)) (H).
  bool exp_guard = true;
  // Products are accumulated in fp32 (0), or in DL16: a multiply-add rounded each time, in chunks of so many elements
  // whose sums are added up, rounded each time (M of the prototypes; the shipped width is UNK).
  int64_t accumulate_chunk = 0;

  bool operator==(const Dl16Settings&) const = default;
};

// A matmul of one batch. Every input and |x|, |w| are DL16 values.
struct Dl16Matmul {
  int64_t rows = 0, k = 0, n = 0;
  const float* x = nullptr;  // [rows, k]
  const float* w = nullptr;  // element (k, n) at k * k_stride + n * n_stride
  int64_t k_stride = 0, n_stride = 1;
  float* out = nullptr;  // [rows, n]
  // Where each k lies in the card's extent, ascending: padding in between is zero and left out. |k_per_core| card
  // elements belong to one core; the cores' partial sums are added in ring order.
  std::span<const int64_t> k_card;
  int64_t k_per_core = 0;
};

class Dl16Math {
 public:
  explicit Dl16Math(const Dl16Settings& settings);

  const Dl16Settings& settings() const { return settings_; }
  float round(float x) const { return round_to_dl16(x, settings_.rules); }
  float constant(double x) const { return dl16_to_f32(constant_to_dl16(static_cast<float>(x), settings_.rules)); }

  float exp(float x) const;       // of a DL16 value, rounded
  float exp_fp32(float x) const;  // of an fp32 tensor, not rounded

  // Sums in ascending order, rounded at the end. |card| as k_card; empty = dense.
  float sum(std::span<const float> x, std::span<const int64_t> card = {}) const;
  // exx2: the mean of x, and of its squares.
  struct Moments {
    float mean = 0, mean_of_squares = 0;
  };
  Moments exx2(std::span<const float> x, std::span<const int64_t> card = {}) const;

  // sum of a[i] * b[i * b_stride], accumulated as a matmul of one core would.
  float dot(std::span<const float> a, const float* b, int64_t b_stride = 1) const;
  void matmul(const Dl16Matmul& call) const;

  // ---- rows of decomposed operators, one rounding per card function. In place is fine.
  void softmax(std::span<const float> x, std::span<float> y, std::span<const int64_t> card = {}) const;
  void rms_norm(std::span<const float> x, std::span<const float> weight, float eps, std::span<float> y,
                std::span<const int64_t> card = {}) const;
  void layer_norm(std::span<const float> x, std::span<const float> weight, std::span<const float> bias, float eps,
                  std::span<float> y, std::span<const int64_t> card = {}) const;
  float gelu_tanh(float x) const;

 private:
  template <typename Term>
  float accumulate(int64_t n, std::span<const int64_t> card, Term&& term) const;

  Dl16Settings settings_;
  float guard_;  // of exp: at and below it the result is 0
};

}  // namespace spyre::device
