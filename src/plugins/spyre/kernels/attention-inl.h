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

// Up to kTileRows rows that see at least one key of a step, and what becomes of them on the way.
template <typename Dot>
struct Block {
  int64_t row[kMostRows];
  const uint16_t* q[kMostRows];
  int lo[kMostRows];  // visible keys within the step
  int hi[kMostRows];
  int rows = 0;
  int last = 0;         // no row sees a key from here on
  bool masked = false;  // some row does not see all 64
  alignas(64) float s[kMostRows][kGroupTokens];
  alignas(64) typename Dot::A p[kMostRows][kGroupTokens];
  float m[kMostRows], shrink[kMostRows];

  void add(int64_t index, const uint16_t* words, int first, int end) {
    row[rows] = index;
    q[rows] = words;
    lo[rows] = first;
    hi[rows] = end;
    last = end > last ? end : last;
    masked |= end - first < kGroupTokens;
    ++rows;
  }
  void clear() {
    rows = last = 0;
    masked = false;
  }
};

// The register tiles are functions of their own: inlined into a larger one, gcc keeps constants of the softmax in
// registers and a fifth of the accumulators in memory.
#define SPYRE_TILE __attribute__((noinline))

// c += a times units [0, units) of the stick at b. With a place `ahead`, asks meanwhile for as much from there on, a
// few lines with each piece of work: in a burst they would hold up the loads behind them.
template <typename Dot, int R, int NV>
SPYRE_INLINE void run_ahead(const typename Dot::A* a, int64_t lda, const uint16_t* b, int64_t units,
                            const uint16_t* ahead, Vec (&c)[R][NV]) {
  if (R < Dot::kAskRows || ahead == nullptr) return Dot::run(a, lda, b, 0, units, c);
  for (int64_t u = 0; u < units; u += Dot::kGroupUnits) {
    const int64_t last = u + Dot::kGroupUnits < units ? u + Dot::kGroupUnits : units;
    for (int64_t i = u; i < last; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < 2 * Dot::kKeysPerUnit; ++j) {
        __builtin_prefetch(ahead + (i * 2 * Dot::kKeysPerUnit + j) * 32, 0, 2);
      }
    }
    Dot::run(a, lda, b, u, last, c);
  }
}

// s[r][0..16 NV) = q[r] . k[j]
template <typename Dot, int R, int NV>
SPYRE_TILE void scores_tile(const typename Dot::A* q, int64_t q_stride, int64_t units, const uint16_t* k,
                            const uint16_t* ahead, float* s) {
  Vec c[R][NV] = {};
  run_ahead<Dot>(q, q_stride, k, units, ahead, c);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < NV; ++i) store(s + r * kGroupTokens + i * 16, c[r][i]);
  }
}

// acc[r] = acc[r] * shrink[r] + p[r] v over NV vectors of a stick
template <typename Dot, int R, int NV, bool kMasked>
SPYRE_TILE void values_tile(const Block<Dot>& block, const uint16_t* v, const uint16_t* ahead, float* const* acc) {
  Vec c[R][NV];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const Vec factor = set1(block.shrink[r]);
#pragma GCC unroll 4
    for (int i = 0; i < NV; ++i) c[r][i] = load(acc[r] + i * 16) * factor;
  }
  if constexpr (kMasked) {
    Dot::run_masked(block.p[0], kGroupTokens, v, block.lo, block.hi, c);
  } else {
    run_ahead<Dot>(block.p[0], kGroupTokens, v, kGroupTokens / Dot::kKeysPerUnit, ahead, c);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < NV; ++i) store(acc[r] + i * 16, c[r][i]);
  }
}

// Scores of the block: s[r][0..16 kVecs) = q[r] . k[j].
template <typename Dot, int R, int kVecs>
SPYRE_TILE void block_scores(const AttendCall& call, Block<Dot>& block, const uint16_t* k, const uint16_t* ahead) {
  constexpr int NV = kTileVecs<Dot, R> < kVecs ? kTileVecs<Dot, R> : kVecs;
  // Close together, but a cache line apart from a power of two: rows 2 KiB apart would share the sets of L1.
  alignas(64) typename Dot::A q[R * (kMaxHeadDim + 16)];
  const int64_t stride = (call.head_dim + 31) / 32 * 32 + 16;
  for (int r = 0; r < R; ++r) Dot::pack(block.q[r], call.head_dim, q + r * stride);
  for (int v = 0; v < kVecs; v += NV) {
    scores_tile<Dot, R, NV>(q, stride, Dot::units(call.head_dim), k + v * 16 * Dot::kKeysPerUnit,
                            v == 0 ? ahead : nullptr, block.s[0] + v * 16);
  }
}

// Scale, cap and mask; the new maximum of each row. Masked scores become -infinity, which exp makes 0.
template <typename Dot, int R, int kVecs>
SPYRE_TILE void block_maxima(const AttendCall& call, Block<Dot>& block) {
  const Vec scale = set1(call.scale), cap = set1(call.soft_cap), lowest = set1(-__builtin_inff());
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    Vec x[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      x[v] = load(block.s[r] + v * 16) * scale;
      if (call.soft_cap > 0) x[v] = cap * tanh16(x[v] / cap);
      if (block.masked) {
        const auto inside = [v](int j) { return j < v * 16 ? 0 : j > v * 16 + 16 ? 16 : j - v * 16; };
        x[v] = select(lanes_between(inside(block.lo[r]), inside(block.hi[r])), x[v], lowest);
      }
      store(block.s[r] + v * 16, x[v]);
    }
    Vec most = greater_of(x[0], x[1]);
    if constexpr (kVecs == 4) most = greater_of(most, greater_of(x[2], x[3]));
    const float largest = greatest(most);
    const float before = call.state.m[block.row[r]];
    block.m[r] = largest > before ? largest : before;
  }
}

// exp of a score less the maximum. A NaN among these was made by an instruction or came from a 16-bit word: the low
// bits of its payload, which scale_by_power would add to the exponent, are 0, so it needs no select to stay a NaN.
template <typename V>
SPYRE_INLINE V exp_of_score(const V& x) {
  return select(less(x, set1(math::kExpLowest)), zero(), exp_in_range(x));
}

// p = round16(exp(s - m)), 0 where masked; the state's l and m; what acc is multiplied by: exp(-infinity) = 0 in an
// empty state. Where m is -infinity or NaN, a visible key has made the row NaN, so the NaN of -infinity - -infinity
// changes nothing.
template <typename Dot, int R, int kVecs>
SPYRE_TILE void block_weights(const AttendCall& call, Block<Dot>& block) {
  constexpr int kSide = kBundleVecs < kVecs ? kBundleVecs : kVecs;
  alignas(64) float fall[16] = {};
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) fall[r] = call.state.m[block.row[r]] - block.m[r];
  store(fall, exp_not_positive(load(fall)));
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const int64_t row = block.row[r];
    const Vec largest = set1(block.m[r]);
    Vec sum = zero();
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; v += kSide) {
      const auto x = bundle<kSide>([&](int i) { return load(block.s[r] + (v + i) * 16); });
      const auto e = exp_of_score(x - largest);
#pragma GCC unroll 4
      for (int i = 0; i < kSide; ++i) sum = sum + Dot::put(block.p[r], (v + i) * 16, e.v[i]);
    }
    block.shrink[r] = fall[r];
    call.state.l[row] = call.state.l[row] * fall[r] + sum_tree(sum);
    call.state.m[row] = block.m[r];
  }
}

// acc = acc * shrink + p V over `vecs` (1..4) vectors of one stick; acc[r], v and ahead at its first column.
template <typename Dot, int R, int NV = kTileVecs<Dot, R>>
SPYRE_INLINE void stick_values(const Block<Dot>& block, const uint16_t* v, const uint16_t* ahead, float** acc,
                               int vecs) {
  for (; vecs >= NV; vecs -= NV) {
    if (block.masked) {
      values_tile<Dot, R, NV, true>(block, v, ahead, acc);
    } else {
      values_tile<Dot, R, NV, false>(block, v, ahead, acc);
    }
    ahead = nullptr;
    v += NV * 16 * Dot::kKeysPerUnit;
    for (int r = 0; r < R; ++r) acc[r] += NV * 16;
  }
  if constexpr (NV > 1) {
    if (vecs > 0) stick_values<Dot, R, NV / 2>(block, v, ahead, acc, vecs);
  }
}

template <typename Dot, int R>
SPYRE_TILE void block_values(const AttendCall& call, const Block<Dot>& block, const uint16_t* v,
                             const uint16_t* ahead) {
  const int64_t stride = attend_stride(call.head_dim);
  for (int64_t d = 0; d < call.head_dim; d += 64) {
    float* acc[R];
    for (int r = 0; r < R; ++r) acc[r] = call.state.acc + block.row[r] * stride + d;
    const int64_t vecs = (call.head_dim - d + 15) / 16;
    stick_values<Dot, R>(block, v + d * kGroupTokens, ahead == nullptr ? nullptr : ahead + d * kGroupTokens, acc,
                         vecs < 4 ? static_cast<int>(vecs) : 4);
  }
}

template <int N>
struct Constant {
  static constexpr int value = N;
};

// f(Constant<rows>) for run-time rows.
template <typename Dot, typename F, int R = kTileRows<Dot>>
SPYRE_INLINE void with_rows(int rows, F f) {
  if (rows == R) return f(Constant<R>{});
  if constexpr (R > 1) with_rows<Dot, F, R - 1>(rows, f);
}

// f(Constant<rows>, Constant<vectors>): two vectors of sixteen keys where no row sees more, as half of the blocks on
// the diagonal of a prompt.
template <typename Dot, typename F>
SPYRE_INLINE void with_shape(const Block<Dot>& block, F f) {
  with_rows<Dot>(block.rows, [&](auto rows) {
    if constexpr (kMostRows > 2) {  // few instances under a sanitizer, as above
      if (block.last <= 32) return f(rows, Constant<2>{});
    }
    f(rows, Constant<4>{});
  });
}

// Two blocks go through the phases side by side: each phase waits for the end of the one before it, some 40 cycles of a
// reduction or a chain of dependent instructions, and the other block's work fills them.
template <typename Dot>
SPYRE_TILE void attend_blocks(const AttendCall& call, Block<Dot>* blocks, int count, const KvGroup& group,
                              const KvGroup& ahead) {
  for (int i = 0; i < count; ++i) {
    with_shape(blocks[i], [&](auto rows, auto vecs) {
      block_scores<Dot, decltype(rows)::value, decltype(vecs)::value>(call, blocks[i], group.k,
                                                                      i == 0 ? ahead.k : nullptr);
    });
  }
  for (int i = 0; i < count; ++i) {
    with_shape(blocks[i], [&](auto rows, auto vecs) {
      block_maxima<Dot, decltype(rows)::value, decltype(vecs)::value>(call, blocks[i]);
    });
  }
  for (int i = 0; i < count; ++i) {
    with_shape(blocks[i], [&](auto rows, auto vecs) {
      block_weights<Dot, decltype(rows)::value, decltype(vecs)::value>(call, blocks[i]);
    });
  }
  for (int i = 0; i < count; ++i) {
    with_rows<Dot>(blocks[i].rows, [&](auto rows) {
      block_values<Dot, decltype(rows)::value>(call, blocks[i], group.v, i == 0 ? ahead.v : nullptr);
    });
  }
}

// What a position sees of the 64 keys from |base| on: [lo, hi), nothing when lo >= hi.
struct StepKeys {
  int lo, hi;
};
SPYRE_INLINE StepKeys keys_of_step(const KeyInterval& visible, int64_t base) {
  const int64_t lo = visible.lo > base ? visible.lo - base : 0;
  const int64_t hi = visible.hi < base + kGroupTokens ? visible.hi - base : kGroupTokens;
  return lo < hi ? StepKeys{static_cast<int>(lo), static_cast<int>(hi)} : StepKeys{0, 0};
}

// Blocks of equal height: 8 rows are 4 + 4, not 6 + 2.
template <typename Dot>
SPYRE_INLINE int64_t block_height(const AttendCall& call, int64_t base) {
  constexpr int64_t kRows = kTileRows<Dot>;
  if (call.rows <= kRows) return kRows;
  int64_t rows = 0;
  for (int64_t p = 0; p * call.q.group < call.rows; ++p) {
    const StepKeys seen = keys_of_step(call.visible[p], base);
    if (seen.lo < seen.hi) rows += call.q.group;
  }
  const int64_t blocks = (rows + kRows - 1) / kRows;
  return blocks > 0 ? (rows + blocks - 1) / blocks : kRows;
}

// Asks for the first lines of the next group: the hardware's prefetcher follows a group by itself once it knows where
// it begins. Asking for every line (run_ahead) pays where the arithmetic takes longer than memory takes to bring a
// line, 8 cycles, and costs where it does not. Decode by two threads of a Zen 4, without and with, in % of a stream
// read: bf16 of 3 rows 99 and 78, f16 of 4 rows 70 and 84.
SPYRE_INLINE void ask_for(const uint16_t* next) {
  if (next == nullptr) return;
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) __builtin_prefetch(next + 32 * i, 0, 2);
}

template <typename Dot>
void attend(const AttendCall& call) {
  Block<Dot> blocks[2];
  for (int64_t g = 0; g < call.group_count; ++g) {
    const int64_t base = (call.first_group + g) * kGroupTokens;
    const int64_t height = block_height<Dot>(call, base);
    // The first blocks of a step bring the next step's keys and values along.
    KvGroup ahead = g + 1 < call.group_count ? call.groups[g + 1] : call.ahead;
    ask_for(ahead.k);
    int full = 0;
    const auto flush = [&] {
      attend_blocks<Dot>(call, blocks, full + (full < 2 && blocks[full].rows > 0), call.groups[g], ahead);
      ahead = {};
      blocks[0].clear();
      blocks[1].clear();
      full = 0;
    };
    const uint16_t* q = call.q.data;
    for (int64_t p = 0, row = 0; row < call.rows; ++p, q += call.q.position_stride) {
      const StepKeys seen = keys_of_step(call.visible[p], base);
      const int64_t end = row + call.q.group;
      if (seen.lo >= seen.hi) row = end;
      for (const uint16_t* head = q; row < end; ++row, head += call.q.head_stride) {
        blocks[full].add(row, head, seen.lo, seen.hi);
        if (blocks[full].rows == height && ++full == 2) flush();
      }
    }
    flush();
  }
}

// The factors of sixteen rows at a time, of which `count` exist.
template <typename T>
void merge(const AttendState& earlier, const AttendState& later, int64_t rows, int64_t head_dim) {
  const int64_t stride = attend_stride(head_dim);
  for (int64_t first = 0; first < rows; first += 16) {
    const int64_t count = rows - first < 16 ? rows - first : 16;
    const Vec m1 = load_n(earlier.m + first, count), m2 = load_n(later.m + first, count);
    const Vec l1 = load_n(earlier.l + first, count), l2 = load_n(later.l + first, count);
    const Vec m = select(less(m2, m1), m1, m2);
    const Vec e1 = exp_not_positive(m1 - m), e2 = exp_not_positive(m2 - m);
    alignas(64) float r1[16], r2[16], was[16], comes[16];
    store(r1, e1);
    store(r2, e2);
    store(was, l1);
    store(comes, l2);
    // An empty later state changes nothing, and into an empty one it is copied.
    const Mask nothing = equal(l2, zero()), empty = equal(l1, zero());
    const Vec new_m = select(nothing, m1, select(empty, m2, m));
    const Vec new_l = select(nothing, l1, select(empty, l2, l1 * e1 + l2 * e2));
    store_n(earlier.m + first, new_m, count);
    store_n(earlier.l + first, new_l, count);
    for (int64_t r = 0; r < count; ++r) {
      float* acc = earlier.acc + (first + r) * stride;
      const float* more = later.acc + (first + r) * stride;
      if (comes[r] == 0) continue;
      const Vec f1 = set1(r1[r]), f2 = set1(r2[r]);
      for (int64_t d = 0; d < stride; d += 16) {
        store(acc + d, was[r] == 0 ? load(more + d) : load(acc + d) * f1 + load(more + d) * f2);
      }
    }
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
