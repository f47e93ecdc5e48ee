// The attention kernels, written once over a simd_*.h file and the orders of attention_dots-inl.h. Included by
// attention_<isa>.cc after both; internal linkage.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)
// A tile reads as much of its operands as pack and put have written; gcc 12 cannot see that head_dim >= 1.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "plugins/spyre/kernels/attention.h"
#include "plugins/spyre/kernels/simd_math-inl.h"

namespace spyre::kernels {
namespace {

// The rows of a tile at most. No bit depends on it; under a sanitizer, where each instance costs a minute to compile,
// two will do.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kMostRows = 2;
#else
constexpr int kMostRows = 6;
#endif

template <typename Dot>
constexpr int kTileRows = Dot::kAccumulatorVecs < kMostRows ? Dot::kAccumulatorVecs : kMostRows;

// Sixteen-column vectors of a tile of R rows: as many as the registers hold, 4, 2 or 1. With few registers gcc spills
// one of 3 x 2 vectors, which costs more than a narrower tile.
template <typename Dot, int R>
constexpr int kTileVecs = R * 4 <= Dot::kAccumulatorVecs                                  ? 4
                          : R * 2 <= Dot::kAccumulatorVecs - (kAccumulators < 12 ? 1 : 0) ? 2
                                                                                          : 1;

// Up to R rows that see at least one key of a step.
struct Block {
  int64_t row[kMostRows];
  int lo[kMostRows];  // visible keys within the step
  int hi[kMostRows];
  int rows = 0;
  bool masked = false;  // some row does not see all 64
};

// The register tiles are functions of their own: inlined into a larger one, gcc keeps constants of the softmax in
// registers and a fifth of the accumulators in memory.
#define SPYRE_TILE __attribute__((noinline))

// Asks for `words` from `ahead` on, into L2: K and V of this step and of the next do not fit L1 together. Few rows
// stream from memory: without this, the loads wait for each new 4 KiB that the hardware prefetcher does not cross into.
SPYRE_INLINE void prefetch(const uint16_t* ahead, int64_t words) {
  for (int64_t i = 0; i < words; i += 32) __builtin_prefetch(ahead + i, 0, 2);
}

// c += a times units [0, units) of the stick at b, asking meanwhile for the same place of the stick at `ahead` (or
// null).
template <typename Dot, int R, int NV>
SPYRE_INLINE void run_ahead(const typename Dot::A* a, int64_t lda, const uint16_t* b, int64_t units,
                            const uint16_t* ahead, Vec (&c)[R][NV]) {
  if (ahead == nullptr) return Dot::run(a, lda, b, 0, units, c);
  // A few lines with each piece of work: a burst of a KiB fills the queue of misses and holds up the loads behind it
  // (3 rows of f16 from memory on a Zen 4: 17 GB/s in bursts into L1, 24 so, of 25 that the cached kernel takes).
  for (int64_t u = 0; u < units; u += Dot::kGroupUnits) {
    const int64_t last = u + Dot::kGroupUnits < units ? u + Dot::kGroupUnits : units;
    prefetch(ahead + u * 64 * Dot::kKeysPerUnit, (last - u) * 64 * Dot::kKeysPerUnit);
    Dot::run(a, lda, b, u, last, c);
  }
}

// s[r][0..16 NV) = q[r] . k[j]
template <typename Dot, int R, int NV>
SPYRE_TILE void scores_tile(const typename Dot::A* q, int64_t units, const uint16_t* k, const uint16_t* ahead,
                            float* s) {
  Vec c[R][NV] = {};
  run_ahead<Dot>(q, kMaxHeadDim, k, units, ahead, c);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < NV; ++i) store(s + r * kGroupTokens + i * 16, c[r][i]);
  }
}

// acc[r] = acc[r] * shrink[r] + p[r] v over NV vectors of a stick
template <typename Dot, int R, int NV, bool kMasked>
SPYRE_TILE void values_tile(const typename Dot::A* p, const float* shrink, const uint16_t* v, const uint16_t* ahead,
                            float* const* acc, const Block& block) {
  Vec c[R][NV];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const Vec factor = set1(shrink[r]);
#pragma GCC unroll 4
    for (int i = 0; i < NV; ++i) c[r][i] = load(acc[r] + i * 16) * factor;
  }
  if constexpr (kMasked) {
    if (ahead != nullptr) prefetch(ahead, kGroupTokens * 64);
    Dot::run_masked(p, kGroupTokens, v, block.lo, block.hi, c);
  } else {
    run_ahead<Dot>(p, kGroupTokens, v, kGroupTokens / Dot::kKeysPerUnit, ahead, c);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < NV; ++i) store(acc[r] + i * 16, c[r][i]);
  }
}

// Scores of the block: s[r][0..64) = q[r] . k[j].
template <typename Dot, int R>
SPYRE_INLINE void block_scores(const AttendCall& call, const Block& block, const uint16_t* k, const uint16_t* ahead,
                               float (*s)[kGroupTokens]) {
  constexpr int NV = kTileVecs<Dot, R>;
  alignas(64) typename Dot::A q[R][kMaxHeadDim];
  const AttendRows<const uint16_t>& rows = call.q;
  for (int r = 0; r < R; ++r) {
    const int64_t row = block.row[r];
    Dot::pack(rows.data + row / rows.group * rows.position_stride + row % rows.group * rows.head_stride, call.head_dim,
              q[r]);
  }
  for (int v = 0; v < 4; v += NV) {
    scores_tile<Dot, R, NV>(q[0], Dot::units(call.head_dim), k + v * 16 * Dot::kKeysPerUnit, v == 0 ? ahead : nullptr,
                            s[0] + v * 16);
  }
}

// Scale, cap and mask; the new maximum of each row. Masked scores become -infinity, which exp makes 0.
template <int R>
SPYRE_TILE void block_maxima(const AttendCall& call, const Block& block, float (*s)[kGroupTokens], float* m) {
  const Vec scale = set1(call.scale), cap = set1(call.soft_cap), lowest = set1(-__builtin_inff());
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    Vec x[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      x[v] = load(s[r] + v * 16) * scale;
      if (call.soft_cap > 0) x[v] = cap * tanh16(x[v] / cap);
      if (block.masked) {
        const auto inside = [v](int j) { return j < v * 16 ? 0 : j > v * 16 + 16 ? 16 : j - v * 16; };
        x[v] = select(lanes_between(inside(block.lo[r]), inside(block.hi[r])), x[v], lowest);
      }
      store(s[r] + v * 16, x[v]);
    }
    const float largest = greatest(greater_of(greater_of(x[0], x[1]), greater_of(x[2], x[3])));
    const float before = call.state.m[block.row[r]];
    m[r] = largest > before ? largest : before;
  }
}

// exp of a score less the maximum. A NaN among these was made by an instruction or came from a 16-bit word: the low
// bits of its payload, which scale_by_power would add to the exponent, are 0, so it needs no select to stay a NaN.
SPYRE_INLINE Vec exp_of_score(Vec x) {
  return select(less(x, set1(math::kExpLowest)), zero(), exp_in_range(x));
}

// p = round16(exp(s - m)), 0 where masked; the state's l and m; what acc is multiplied by: exp(-infinity) = 0 in an
// empty state. Where m is -infinity or NaN, a visible key has made the row NaN, so the NaN of -infinity - -infinity
// changes nothing.
template <typename Dot, int R>
SPYRE_TILE void block_weights(const AttendCall& call, const Block& block, float (*s)[kGroupTokens], const float* m,
                              typename Dot::A (*p)[kGroupTokens], float* shrink) {
  alignas(64) float fall[16] = {};
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) fall[r] = call.state.m[block.row[r]] - m[r];
  store(fall, exp_not_positive(load(fall)));
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const int64_t row = block.row[r];
    const Vec largest = set1(m[r]);
    Vec sum = zero();
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      sum = sum + Dot::put(p[r], v * 16, exp_of_score(load(s[r] + v * 16) - largest));
    }
    shrink[r] = fall[r];
    call.state.l[row] = call.state.l[row] * shrink[r] + sum_tree(sum);
    call.state.m[row] = m[r];
  }
}

// acc = acc * shrink + p V over `vecs` (1..4) vectors of one stick; acc[r], v and ahead at its first column.
template <typename Dot, int R, int NV = kTileVecs<Dot, R>>
SPYRE_INLINE void stick_values(const Block& block, const typename Dot::A* p, const float* shrink, const uint16_t* v,
                               const uint16_t* ahead, float** acc, int vecs) {
  for (; vecs >= NV; vecs -= NV) {
    if (block.masked) {
      values_tile<Dot, R, NV, true>(p, shrink, v, ahead, acc, block);
    } else {
      values_tile<Dot, R, NV, false>(p, shrink, v, ahead, acc, block);
    }
    ahead = nullptr;
    v += NV * 16 * Dot::kKeysPerUnit;
    for (int r = 0; r < R; ++r) acc[r] += NV * 16;
  }
  if constexpr (NV > 1) stick_values<Dot, R, NV / 2>(block, p, shrink, v, ahead, acc, vecs);
}

template <typename Dot, int R>
void attend_block(const AttendCall& call, const Block& block, const KvGroup& group, const KvGroup& ahead) {
  alignas(64) float s[R][kGroupTokens];
  alignas(64) typename Dot::A p[R][kGroupTokens];
  float m[R], shrink[R];
  block_scores<Dot, R>(call, block, group.k, ahead.k, s);
  block_maxima<R>(call, block, s, m);
  block_weights<Dot, R>(call, block, s, m, p, shrink);
  const int64_t stride = attend_stride(call.head_dim);
  for (int64_t d = 0; d < call.head_dim; d += 64) {
    float* acc[R];
    for (int r = 0; r < R; ++r) acc[r] = call.state.acc + block.row[r] * stride + d;
    const int64_t vecs = (call.head_dim - d + 15) / 16;
    stick_values<Dot, R>(block, p[0], shrink, group.v + d * kGroupTokens,
                         ahead.v == nullptr ? nullptr : ahead.v + d * kGroupTokens, acc,
                         vecs < 4 ? static_cast<int>(vecs) : 4);
  }
}

template <typename Dot, int R = kTileRows<Dot>>
void dispatch_block(const AttendCall& call, const Block& block, const KvGroup& group, const KvGroup& ahead) {
  if (block.rows == R) return attend_block<Dot, R>(call, block, group, ahead);
  if constexpr (R > 1) dispatch_block<Dot, R - 1>(call, block, group, ahead);
}

template <typename Dot>
void attend(const AttendCall& call) {
  for (int64_t g = 0; g < call.group_count; ++g) {
    const int64_t base = (call.first_group + g) * kGroupTokens;
    // The first block of a step brings the next step's keys and values along.
    KvGroup ahead = g + 1 < call.group_count ? call.groups[g + 1] : call.ahead;
    Block block;
    const auto flush = [&] {
      if (block.rows > 0) dispatch_block<Dot>(call, block, call.groups[g], ahead);
      ahead = {};
      block.rows = 0;
      block.masked = false;
    };
    for (int64_t first = 0; first < call.rows; first += call.q.group) {
      const KeyInterval& visible = call.visible[first / call.q.group];
      const int64_t lo = visible.lo > base ? visible.lo - base : 0;
      const int64_t hi = visible.hi < base + kGroupTokens ? visible.hi - base : kGroupTokens;
      if (lo >= hi) continue;
      for (int64_t row = first; row < first + call.q.group; ++row) {
        block.row[block.rows] = row;
        block.lo[block.rows] = static_cast<int>(lo);
        block.hi[block.rows] = static_cast<int>(hi);
        block.masked |= hi - lo < kGroupTokens;
        if (++block.rows == kTileRows<Dot>) flush();
      }
    }
    flush();
  }
}

template <typename T>
void merge(const AttendState& earlier, const AttendState& later, int64_t rows, int64_t head_dim) {
  const int64_t stride = attend_stride(head_dim);
  for (int64_t r = 0; r < rows; ++r) {
    float* acc = earlier.acc + r * stride;
    const float* more = later.acc + r * stride;
    if (later.l[r] == 0) continue;
    if (earlier.l[r] == 0) {
      earlier.m[r] = later.m[r];
      earlier.l[r] = later.l[r];
      for (int64_t d = 0; d < stride; d += 16) store(acc + d, load(more + d));
      continue;
    }
    const float m = earlier.m[r] > later.m[r] ? earlier.m[r] : later.m[r];
    alignas(64) float shrink[16] = {earlier.m[r] - m, later.m[r] - m};
    store(shrink, exp_not_positive(load(shrink)));
    earlier.m[r] = m;
    earlier.l[r] = earlier.l[r] * shrink[0] + later.l[r] * shrink[1];
    const Vec r1 = set1(shrink[0]), r2 = set1(shrink[1]);
    for (int64_t d = 0; d < stride; d += 16) store(acc + d, load(acc + d) * r1 + load(more + d) * r2);
  }
}

template <typename T>
void finish(const AttendState& state, int64_t rows, int64_t head_dim, const AttendRows<uint16_t>& out) {
  const int64_t stride = attend_stride(head_dim);
  for (int64_t r = 0; r < rows; ++r) {
    uint16_t* y = out.data + r / out.group * out.position_stride + r % out.group * out.head_stride;
    const float* acc = state.acc + r * stride;
    const Vec l = set1(state.l[r]);
    const bool empty = state.l[r] == 0;
    for (int64_t d = 0; d < head_dim; d += 16) {
      const Vec x = empty ? zero() : load(acc + d) / l;
      if (head_dim - d >= 16) {
        T::store(y + d, x);
      } else {
        T::store_n(y + d, x, head_dim - d);
      }
    }
  }
}

template <typename Dot>
constexpr AttentionKernels attention_table(const char* name, DotOrder order, CpuLevel level) {
  using T = typename Dot::Element;
  return {name, T::kIsBf16 ? DType::kBF16 : DType::kF16, order, level, attend<Dot>, merge<T>, finish<T>};
}

}  // namespace
}  // namespace spyre::kernels
