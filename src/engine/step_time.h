// How long a step will take, learned from the steps that were: what chunked prefill is sized by.
//
//   seconds = a + b * prefill tokens + c * decode rows + d * positions that decodes read + e * (query, key) pairs of
//   prefill
//
// Five costs, none negative, fitted after every step to all steps so far, each counting a little less with every later
// one of its kind. Errors count relative to the step's time, so that short steps matter as much as long ones, and a
// step that was far off (another process had the machine) counts less. predict() is on the safe side: it carries a
// margin that most steps stay below, learned as well.
//
// Single-threaded; owned by the engine.
#pragma once

#include <array>
#include <cstdint>

namespace spyre::engine {

// What a step consists of.
struct StepShape {
  int64_t prefill_tokens = 0, decode_rows = 0;
  double decode_context = 0;  // positions that the decode rows attend to, summed up
  double prefill_pairs = 0;   // (query, key) pairs of the prefill rows

  void add_prefill(int64_t start, int64_t tokens) {
    prefill_tokens += tokens;
    const auto n = static_cast<double>(tokens);
    prefill_pairs += n * (static_cast<double>(start) + (n + 1) / 2);
  }
  void add_decode(int64_t context) {
    ++decode_rows;
    decode_context += static_cast<double>(context);
  }
};

class StepTimeModel {
 public:
  void observe(const StepShape& shape, double seconds);

  // With the margin. Without a single observation every step is free: 0.
  double predict(const StepShape& shape) const;

  // The most tokens, up to |most|, that a chunk which begins at |start| may have beside |shape| so that the step is
  // predicted to stay within |seconds|; 0 when not even one fits.
  int64_t largest_chunk(StepShape shape, int64_t start, int64_t most, double seconds) const;

  int64_t observations() const { return observations_; }
  double margin() const { return margin_; }  // predict() / the fit

 private:
  static constexpr int kCosts = 5;
  using Vector = std::array<double, kCosts>;

  static Vector features(const StepShape& shape);
  double fit(const StepShape& shape) const;
  void solve();

  struct Equations {
    std::array<Vector, kCosts> normal{};  // sum of weight * x * x^T
    Vector right{};                       // sum of weight * x * seconds
  };
  // Steps of prefill, of decodes, of both: each kind forgets its own steps only, so that an hour of decodes does not
  // wipe out what is known about prompts.
  std::array<Equations, 4> kinds_{};
  Vector costs_{};
  double spread_ = 0.1;  // of the relative error
  double margin_ = 1.2;
  int64_t observations_ = 0;
};

}  // namespace spyre::engine
