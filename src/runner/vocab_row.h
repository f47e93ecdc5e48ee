// One row of logits and what has been found out about it: the largest entry of each block of 64, so that the largest
// entries of all are found without reading most of the row again. Keeps its buffers: nothing is allocated once it has
// seen a row of the vocabulary. Single-threaded.
//
// Rankings are by descending logit, equal ones (zeros of either sign are equal) by ascending token.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "base/export.h"
#include "runner/vocab_kernels.h"

namespace spyre::runner {

// The order of every ranking as ascending integers. Negative floats order backwards by their bits, and adding +0 makes
// one zero of two. The upper half is the logit alone, the lower the token.
inline uint64_t rank_key(float logit, int64_t token) {
  const uint32_t bits = std::bit_cast<uint32_t>(logit + 0.0f);
  const uint32_t descending = (bits >> 31) != 0 ? bits : ~bits & 0x7fffffffu;
  return uint64_t{descending} << 32 | static_cast<uint32_t>(token);
}

class SPYRE_API VocabRow {
 public:
  VocabRow();  // with the kernels of this machine (SPYRE_CPU_FEATURES caps them)
  explicit VocabRow(const VocabKernels& kernels) : kernels_(&kernels) {}

  // Borrows |logits| (at least one) until the next call. Throws Error(kUnsupported) naming the first that is NaN or
  // +infinity.
  void scan(std::span<const float> logits);

  std::span<const float> logits() const { return logits_; }
  float highest() const { return highest_; }
  int32_t first_highest() const;  // -1 when every logit is -infinity

  // A logit such that at least |count| of the row are as large, or -infinity when |count| is more than the blocks tell.
  float threshold(int64_t count);
  // The tokens, ascending, of every logit but -infinity in [least, below). Valid until the next call.
  std::span<const int32_t> tokens_between(float least, float below = std::numeric_limits<float>::infinity());

  // Fills in weights() (whole blocks) = exp((logit - highest) * inverse) and block_mass(), their sums by blocks in
  // fp32. REQUIRES: highest() is finite, inverse > 0.
  void weigh(float inverse);
  std::span<const float> weights() const { return weights_; }
  std::span<const float> block_mass() const { return block_mass_; }
  double weighed_mass() const;  // block_mass() added in double, ascending
  // See VocabKernels. REQUIRES: weigh() was called for this row.
  VocabTail tail(float least) const;
  void cut_after(int32_t token);

  double mass();                      // of exp(logit - highest); weights() stay as they are, block_mass() may not
  int64_t rank(int32_t token) const;  // 1 = the largest

 private:
  const VocabKernels* kernels_;
  std::span<const float> logits_;
  float highest_ = 0;
  std::optional<double> mass_;  // what mass() has found, or weigh() on its way
  std::vector<float> block_max_, block_mass_, weights_, sorted_;
  std::vector<int32_t> tokens_;
};

}  // namespace spyre::runner
