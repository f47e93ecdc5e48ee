// The passes over a whole row of logits, as kernels: one source file per instruction set, chosen from a table by an
// argument. All give equal bits. A row is cut into blocks of 64, the last one short; what a pass finds per block lets
// later ones leave most of the row unread.
#pragma once

#include <cstdint>

#include "base/cpu.h"
#include "base/export.h"

namespace spyre::runner {

constexpr int64_t kVocabBlock = 64;

constexpr int64_t vocab_blocks(int64_t n) {
  return (n + kVocabBlock - 1) / kVocabBlock;
}

struct VocabTail {
  double mass = 0;
  int64_t count = 0;
};

// |x| has n >= 1 elements; per-block arrays have vocab_blocks(n).
struct VocabKernels {
  // The largest element of each block. False when the row has a NaN or +infinity; the maxima then say nothing.
  bool (*maxima)(const float* x, int64_t n, float* block_max);
  // weights[t] = exp((x[t] - highest) * inverse), 0 for x[t] = -infinity and past the row; the mass of a block is the
  // tree16 sum (docs/numerics.md §3) of its weights in fp32. |weights|, whole blocks, may be null.
  // REQUIRES: x[t] <= highest, inverse > 0.
  void (*weigh)(const float* x, int64_t n, float highest, float inverse, float* weights, float* block_mass);
  // The weights of what is >= |least|, and how many they are: tree16 sums of blocks in fp32, added in double,
  // ascending. Blocks with a smaller maximum are not read.
  VocabTail (*tail)(const float* x, int64_t n, const float* block_max, const float* weights, float least);
  // The tokens, ascending, whose logits lie in [least, below), least > -infinity; |tokens| has room for n + 1. Returns
  // how many they are. Blocks with a smaller maximum are not read.
  int64_t (*select)(const float* x, int64_t n, const float* block_max, float least, float below, int32_t* tokens);
  // Makes 0 of every weight that ranks after |token| of logit |least| (smaller, or equal and behind it), and of the
  // masses what is left. Weights in a block of mass 0 may stay.
  void (*cut)(const float* x, int64_t n, const float* block_max, float least, int64_t token, float* weights,
              float* block_mass);
  // How many elements are above |value|, or equal to it and before |token|. Blocks with a smaller maximum are not
  // read.
  int64_t (*rank)(const float* x, int64_t n, const float* block_max, float value, int64_t token);
};

SPYRE_API const VocabKernels& vocab_kernels(const CpuFeatures& features);

extern const VocabKernels kVocabKernelsPortable, kVocabKernelsAvx2, kVocabKernelsAvx512;

}  // namespace spyre::runner
