// The kernels of vocab_kernels.h over compiler vectors as wide as the registers of the instruction set that the
// including file is compiled for. Sixteen lanes (a Lanes) whatever the width, so the sums have one order.
// Everything has internal linkage: see src/plugins/spyre/kernels/CMakeLists.txt.
#include <cstdint>
#include <cstring>

#include "base/vector_math.h"
#include "runner/vocab_kernels.h"

namespace spyre::runner {
namespace {

#if defined(__AVX512F__)
constexpr int kWidth = 16;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif
constexpr int kParts = 16 / kWidth;

typedef float F __attribute__((vector_size(4 * kWidth)));
typedef int32_t I __attribute__((vector_size(4 * kWidth)));
typedef uint32_t U __attribute__((vector_size(4 * kWidth)));
typedef float F4 __attribute__((vector_size(16)));

#define SPYRE_INLINE inline __attribute__((always_inline))

struct Lanes {
  F v[kParts];
};

SPYRE_INLINE F splat(float x) {
  return x - F{};  // -0 and infinities stay what they are
}
SPYRE_INLINE F load(const float* p) {
  F x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
SPYRE_INLINE F larger(F a, F b) {
  return a > b ? a : b;
}

// exp_f32 of x <= 0 or -infinity.
SPYRE_INLINE F exp_not_positive(F x) {
  const F shifted = x * math::kLog2E + math::kRoundMagic;
  const F n = shifted - math::kRoundMagic;
  const F r = (x - n * math::kLn2High) - n * math::kLn2Low;
  F p = splat(math::kExp[4]);
#pragma GCC unroll 4
  for (int i = 3; i >= 0; --i) p = p * r + math::kExp[i];
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const U scaled = (U)p + ((U)shifted << 23);
  return x < math::kExpLowest ? F{} : (F)scaled;
}

// Sixteen lanes to one: l[i] op= l[i + 8], then 4, 2, 1.
template <typename Op>
SPYRE_INLINE float reduce(const Lanes& lanes, Op op) {
  F4 q[4];
  std::memcpy(q, &lanes, sizeof q);
  F4 s = op(op(q[0], q[2]), op(q[1], q[3]));
  s = op(s, __builtin_shufflevector(s, s, 2, 3, 0, 1));
  s = op(s, __builtin_shufflevector(s, s, 1, 0, 3, 2));
  return s[0];
}

// Calls block(pointer to 64 elements, index, how many of them are of the row) for each block.
template <typename Block>
SPYRE_INLINE void for_blocks(const float* x, int64_t n, Block block) {
  const int64_t whole = n / kVocabBlock;
  for (int64_t b = 0; b < whole; ++b) block(x + b * kVocabBlock, b, kVocabBlock);
  const int64_t rest = n - whole * kVocabBlock;
  if (rest == 0) return;
  float padded[kVocabBlock];
  for (float& value : padded) value = -__builtin_inff();
  std::memcpy(padded, x + whole * kVocabBlock, static_cast<size_t>(rest) * sizeof(float));
  block(padded, whole, rest);
}

bool maxima(const float* x, int64_t n, float* block_max) {
  I bad = {};
  for_blocks(x, n, [&](const float* p, int64_t b, int64_t) {
    Lanes m;
#pragma GCC unroll 4
    for (int i = 0; i < kParts; ++i) {
      m.v[i] = load(p + i * kWidth);
      bad |= ~(m.v[i] <= __FLT_MAX__);
#pragma GCC unroll 4
      for (int row = 1; row < 4; ++row) {
        const F y = load(p + row * 16 + i * kWidth);
        bad |= ~(y <= __FLT_MAX__);
        m.v[i] = larger(y, m.v[i]);
      }
    }
    block_max[b] = reduce(m, [](F4 a, F4 c) { return a > c ? a : c; });
  });
  int32_t any = 0;
  for (int i = 0; i < kWidth; ++i) any |= bad[i];
  return any == 0;
}

void weigh(const float* x, int64_t n, float highest, float inverse, float* weights, float* block_mass) {
  for_blocks(x, n, [&](const float* p, int64_t b, int64_t) {
    Lanes sum;
#pragma GCC unroll 4
    for (int i = 0; i < kParts; ++i) {
      sum.v[i] = F{};
#pragma GCC unroll 4
      for (int row = 0; row < 4; ++row) {
        const int64_t at = row * 16 + i * kWidth;
        const F y = exp_not_positive((load(p + at) - highest) * inverse);
        sum.v[i] = sum.v[i] + y;
        if (weights != nullptr) std::memcpy(weights + b * kVocabBlock + at, &y, sizeof y);
      }
    }
    block_mass[b] = reduce(sum, [](F4 a, F4 c) { return a + c; });
  });
}

// The sum of the 64 weights that keep(logits, at) keeps, as tree16; |each| is given what is left of them.
template <typename Keep, typename Each>
SPYRE_INLINE float kept_mass(const float* p, const float* weights, Keep keep, Each each) {
  Lanes sum;
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) {
    sum.v[i] = F{};
#pragma GCC unroll 4
    for (int row = 0; row < 4; ++row) {
      const int64_t at = row * 16 + i * kWidth;
      const I kept = keep(load(p + at), at);
      const F w = (F)((I)load(weights + at) & kept);
      sum.v[i] = sum.v[i] + w;
      each(w, kept, at);
    }
  }
  return reduce(sum, [](F4 a, F4 c) { return a + c; });
}

VocabTail tail(const float* x, int64_t n, const float* block_max, const float* weights, float least) {
  VocabTail result;
  I count = {};
  for_blocks(x, n, [&](const float* p, int64_t b, int64_t) {
    if (block_max[b] < least) return;
    result.mass += kept_mass(
        p, weights + b * kVocabBlock, [&](F logits, int64_t) { return logits >= least; },
        [&](F, I kept, int64_t) { count -= kept; });
  });
  for (int i = 0; i < kWidth; ++i) result.count += count[i];
  return result;
}

int64_t select(const float* x, int64_t n, const float* block_max, float least, float below, int32_t* tokens) {
  int64_t count = 0;
  for_blocks(x, n, [&](const float* p, int64_t b, int64_t) {
    if (block_max[b] < least) return;
    for (int first = 0; first < kVocabBlock; first += 16) {
      struct {
        I lanes[kParts];
      } inside;
      for (int i = 0; i < kParts; ++i) {
        const F y = load(p + first + i * kWidth);
        inside.lanes[i] = (y >= least) & (y < below);
      }
      uint64_t words[8], any = 0;
      std::memcpy(words, &inside, sizeof words);
      for (const uint64_t word : words) any |= word;
      if (any == 0) continue;
      // Few are: one by one. The padding of the last block is -infinity, which is never inside.
      for (int i = 0; i < 16; ++i) {
        tokens[count] = static_cast<int32_t>(b * kVocabBlock + first + i);
        const float y = p[first + i];
        count += static_cast<int64_t>(y >= least) & static_cast<int64_t>(y < below);
      }
    }
  });
  return count;
}

void cut(const float* x, int64_t n, const float* block_max, float least, int64_t token, float* weights,
         float* block_mass) {
  for_blocks(x, n, [&](const float* p, int64_t b, int64_t in_row) {
    block_mass[b] = 0;
    if (block_max[b] < least) return;
    float* w = weights + b * kVocabBlock;
    const int64_t first = b * kVocabBlock;
    if (first <= token && token < first + in_row) {
      for (int64_t i = token - first + 1; i < in_row; ++i) w[i] = p[i] == least ? 0.0f : w[i];
    }
    const auto store = [&](F y, I, int64_t at) { std::memcpy(w + at, &y, sizeof y); };
    if (first <= token) {
      block_mass[b] = kept_mass(p, w, [&](F logits, int64_t) { return logits >= least; }, store);
    } else {
      block_mass[b] = kept_mass(p, w, [&](F logits, int64_t) { return logits > least; }, store);
    }
  });
}

int64_t rank(const float* x, int64_t n, const float* block_max, float value, int64_t token) {
  int64_t count = 0;
  for_blocks(x, n, [&](const float* p, int64_t b, int64_t in_row) {
    if (block_max[b] < value) return;
    const int64_t first = b * kVocabBlock;
    if (first <= token && token < first + in_row) {  // the one block with elements on both sides
      for (int64_t i = 0; i < in_row; ++i) count += p[i] > value || (p[i] == value && first + i < token);
      return;
    }
    I above = {};
    // The padding is -infinity: it lies behind the token, and nothing is below it.
    if (first < token) {
#pragma GCC unroll 16
      for (int i = 0; i < kVocabBlock / kWidth; ++i) above += load(p + i * kWidth) >= value;
    } else {
#pragma GCC unroll 16
      for (int i = 0; i < kVocabBlock / kWidth; ++i) above += load(p + i * kWidth) > value;
    }
    int32_t sum = 0;
    for (int i = 0; i < kWidth; ++i) sum -= above[i];
    count += sum;
  });
  return count;
}

constexpr VocabKernels kKernels = {
    .maxima = maxima, .weigh = weigh, .tail = tail, .select = select, .cut = cut, .rank = rank};

}  // namespace
}  // namespace spyre::runner
