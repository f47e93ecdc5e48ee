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

// Rows of a fold of eight (sum_trees), of which a block has at most kMostRows.
constexpr int kFoldRows = 8;

// Up to kTileRows consecutive rows that see at least one key of a step, and what becomes of them on the way.
template <typename Dot>
struct Block {
  int64_t first = 0;
  int rows = 0;
  int last = 0;         // no row sees a key from here on
  bool masked = false;  // some row does not see all 64
  int lo[kMostRows];    // visible keys within the step
  int hi[kMostRows];
  float factor;                                  // what a score in s is still to be multiplied by
  alignas(64) float s[kMostRows][kGroupTokens];  // q . k
  alignas(64) typename Dot::A p[kMostRows][kGroupTokens];
  alignas(64) float lanes[kFoldRows][16] = {};  // of each row: sixteen lanes of its maximum, later of its sum
  alignas(64) float m[16], shrink[16];          // lane r is row r's

  // False where the row is not the next one: it begins another block.
  bool takes(int64_t row) const { return rows == 0 || row == first + rows; }
  void add(int64_t row, int first_key, int end_key) {
    if (rows == 0) first = row;
    lo[rows] = first_key;
    hi[rows] = end_key;
    last = end_key > last ? end_key : last;
    masked |= end_key - first_key < kGroupTokens;
    ++rows;
  }
  // `count` rows from `row` on that see all 64 keys.
  void fill(int64_t row, int count) {
    first = row;
    rows = count;
    last = kGroupTokens;
    masked = false;
  }
  void clear() {
    rows = last = 0;
    masked = false;
  }
};

// The rows of q as the tiles read them: all of a call, packed once, where they fit; else those of one block at a time.
template <typename Dot>
class Queries {
 public:
  // Rows of q are close together, but a cache line apart from a power of two of 1 KiB or more: rows as far apart would
  // share the sets of L1.
  explicit Queries(const AttendCall& call) : call_(call) {
    const int64_t words = (Dot::units(call.head_dim) * Dot::kWordsPerUnit + 15) / 16 * 16;
    stride_ = words < 256 ? words : words + 16;
    all_ = call.rows * stride_ <= kWords;
    if (all_) pack(0, call.rows);
  }
  int64_t stride() const { return stride_; }
  const typename Dot::A* rows(int64_t first, int64_t count) {
    if (all_) return words_ + first * stride_;
    pack(first, count);
    return words_;
  }

 private:
  static constexpr int64_t kWords = 4096;  // 16 KiB
  static_assert(kWords >= kMostRows * (kMaxHeadDim + 16));

  void pack(int64_t first, int64_t count) {
    const AttendRows<const uint16_t>& q = call_.q;
    int64_t head = first % q.group;
    const uint16_t* position = q.data + first / q.group * q.position_stride;
    for (int64_t r = 0; r < count; ++r) {
      Dot::pack(position + head * q.head_stride, call_.head_dim, words_ + r * stride_);
      if (++head == q.group) {
        head = 0;
        position += q.position_stride;
      }
    }
  }

  const AttendCall& call_;
  int64_t stride_;
  bool all_;
  alignas(64) typename Dot::A words_[kWords];
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
SPYRE_TILE void block_scores(const AttendCall& call, Queries<Dot>& queries, Block<Dot>& block, const uint16_t* k,
                             const uint16_t* ahead) {
  constexpr int NV = kTileVecs<Dot, R> < kVecs ? kTileVecs<Dot, R> : kVecs;
  const typename Dot::A* q = queries.rows(block.first, R);
  for (int v = 0; v < kVecs; v += NV) {
    scores_tile<Dot, R, NV>(q, queries.stride(), Dot::units(call.head_dim), k + v * 16 * Dot::kKeysPerUnit,
                            v == 0 ? ahead : nullptr, block.s[0] + v * 16);
  }
}

// Scores of which the largest is not the scale times the largest product: with a cap, or a scale that is not a positive
// normal number.
template <typename Dot>
SPYRE_TILE void scale_scores(const AttendCall& call, Block<Dot>& block, int vecs) {
  const Vec scale = set1(call.scale), cap = set1(call.soft_cap);
  for (int r = 0; r < block.rows; ++r) {
    for (float* s = block.s[r]; s < block.s[r] + vecs * 16; s += 16) {
      const Vec x = load(s) * scale;
      store(s, call.soft_cap > 0 ? cap * tanh16(x / cap) : x);
    }
  }
}

// The new maximum of each row, in the block and in the state, and what acc is multiplied by: exp(-infinity) = 0 in an
// empty state. Masked scores become -infinity, which exp makes 0. Scaling keeps the order of numbers, rounded or not:
// it waits until there is one number for each row.
template <typename Dot, int kVecs>
SPYRE_TILE void block_maxima(const AttendCall& call, Block<Dot>& block) {
  const bool in_order = call.soft_cap <= 0 && call.scale >= __FLT_MIN__;
  if (!in_order) scale_scores(call, block, kVecs);
  block.factor = in_order ? call.scale : 1;
  if (block.masked) {
    const Vec lowest = set1(-__builtin_inff());
    for (int r = 0; r < block.rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) {
        const auto inside = [v](int j) { return j < v * 16 ? 0 : j > v * 16 + 16 ? 16 : j - v * 16; };
        float* s = block.s[r] + v * 16;
        store(s, select(lanes_between(inside(block.lo[r]), inside(block.hi[r])), load(s), lowest));
      }
    }
  }
  for (int r = 0; r < block.rows; ++r) {
    const float* s = block.s[r];
    Vec most = greater_of(load(s), load(s + 16));
    if constexpr (kVecs == 4) most = greater_of(most, greater_of(load(s + 32), load(s + 48)));
    store(block.lanes[r], most);
  }
  const Vec before = load_n(call.state.m + block.first, block.rows);
  const Vec m = greater_of(greatest_of_each(block.lanes[0]) * set1(block.factor), before);
  store_n(call.state.m + block.first, m, block.rows);
  store(block.m, m);
  store(block.shrink, exp_not_positive(before - m));
}

// exp of a score less the maximum. A NaN among these was made by an instruction or came from a 16-bit word: the low
// bits of its payload, which the power would add to the exponent, are 0, so it needs no select to stay a NaN.
template <typename V>
SPYRE_INLINE V exp_of_score(const V& x) {
  return exp_by(x, [&](const V& p, const V& shifted) {
    return scale_by_power_where(not_less(x, set1(math::kExpLowest)), p, shifted);
  });
}

// p = round16(exp(s - m)) of kRows rows from r on, 0 where masked, and the sixteen lanes of their sums. Where m is
// -infinity or NaN, a visible key has made the row NaN, so the NaN of -infinity - -infinity changes nothing.
template <int kRows, int kVecs, typename Dot>
SPYRE_INLINE void weights_of(Block<Dot>& block, int r) {
  constexpr int kSide = kExpVecs / kRows < kVecs ? kExpVecs / kRows : kVecs;  // vectors of each row at a time
  const Vec factor = set1(block.factor);
  Vec sum[kRows] = {};
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; v += kSide) {
    const auto row = [&](int i) { return r + i / kSide; };
    const auto at = [&](int i) { return (v + i % kSide) * 16; };
    const auto x =
        bundle<kRows * kSide>([&](int i) { return load(block.s[row(i)] + at(i)) * factor - set1(block.m[row(i)]); });
    const auto e = exp_of_score(x);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const auto part = bundle<kSide>([&](int j) { return e.v[i * kSide + j]; });
      const auto p = Dot::put(block.p[r + i] + v * 16 / Dot::kElementsPerWord, part);
#pragma GCC unroll 8
      for (int j = 0; j < kSide; ++j) sum[i] = sum[i] + p.v[j];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) store(block.lanes[r + i], sum[i]);
}

// The weights of the block, and the state's l.
template <typename Dot, int kVecs>
SPYRE_TILE void block_weights(const AttendCall& call, Block<Dot>& block) {
  constexpr int kRows = kExpVecs / kVecs < 1 ? 1 : kExpVecs / kVecs;
  int r = 0;
  for (; r + kRows <= block.rows; r += kRows) weights_of<kRows, kVecs>(block, r);
  for (; r < block.rows; ++r) weights_of<1, kVecs>(block, r);
  float* l = call.state.l + block.first;
  store_n(l, load_n(l, block.rows) * load(block.shrink) + sum_trees(block.lanes[0]), block.rows);
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
    for (int r = 0; r < R; ++r) acc[r] = call.state.acc + (block.first + r) * stride + d;
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

// f(Constant<vectors>): two vectors of sixteen keys where no row sees more, as half of the blocks on the diagonal of a
// prompt.
template <typename Dot, typename F>
SPYRE_INLINE void with_vecs(const Block<Dot>& block, F f) {
  if constexpr (kMostRows > 2) {  // few instances under a sanitizer, as above
    if (block.last <= 32) return f(Constant<2>{});
  }
  f(Constant<4>{});
}

// Two blocks go through the phases side by side: each phase waits for the end of the one before it, some 40 cycles of a
// reduction or a chain of dependent instructions, and the other block's work fills them.
template <typename Dot>
SPYRE_TILE void attend_blocks(const AttendCall& call, Queries<Dot>& queries, Block<Dot>* blocks, int count,
                              const KvGroup& group, const KvGroup& ahead) {
  for (int i = 0; i < count; ++i) {
    with_rows<Dot>(blocks[i].rows, [&](auto rows) {
      with_vecs(blocks[i], [&](auto vecs) {
        block_scores<Dot, decltype(rows)::value, decltype(vecs)::value>(call, queries, blocks[i], group.k,
                                                                        i == 0 ? ahead.k : nullptr);
      });
    });
  }
  for (int i = 0; i < count; ++i) {
    with_vecs(blocks[i], [&](auto vecs) { block_maxima<Dot, decltype(vecs)::value>(call, blocks[i]); });
  }
  for (int i = 0; i < count; ++i) {
    with_vecs(blocks[i], [&](auto vecs) { block_weights<Dot, decltype(vecs)::value>(call, blocks[i]); });
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
SPYRE_INLINE int64_t equal_height(int64_t rows) {
  constexpr int64_t kRows = kTileRows<Dot>;
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

// The call in hand: its rows go through each group of keys, two blocks at a time.
template <typename Dot>
class Attend {
 public:
  explicit Attend(const AttendCall& call) : call_(call), queries_(call) {
    for (int64_t p = 0; p * call.q.group < call.rows; ++p) {
      if (call.visible[p].lo > all_lo_) all_lo_ = call.visible[p].lo;
      if (call.visible[p].hi < all_hi_) all_hi_ = call.visible[p].hi;
    }
  }

  void run() {
    for (int64_t g = 0; g < call_.group_count; ++g) {
      const int64_t base = (call_.first_group + g) * kGroupTokens;
      group_ = &call_.groups[g];
      // The first blocks of a step bring the next step's keys and values along.
      ahead_ = g + 1 < call_.group_count ? call_.groups[g + 1] : call_.ahead;
      ask_for(ahead_.k);
      if (all_lo_ <= base && base + kGroupTokens <= all_hi_) {
        visit_all();
      } else {
        visit_some(base);
      }
      flush();
    }
  }

 private:
  // Every row sees every key.
  void visit_all() {
    const int64_t height = equal_height<Dot>(call_.rows);
    for (int64_t row = 0; row < call_.rows; row += height) {
      blocks_[count_].fill(row, static_cast<int>(height < call_.rows - row ? height : call_.rows - row));
      if (++count_ == 2) flush();
    }
  }

  void visit_some(int64_t base) {
    const int64_t group = call_.q.group;
    int64_t rows = 0;
    for (int64_t p = 0; p * group < call_.rows; ++p) {
      const StepKeys seen = keys_of_step(call_.visible[p], base);
      if (seen.lo < seen.hi) rows += group;
    }
    const int64_t height = equal_height<Dot>(rows);
    for (int64_t p = 0, row = 0; row < call_.rows; ++p) {
      const StepKeys seen = keys_of_step(call_.visible[p], base);
      const int64_t end = row + group;
      if (seen.lo >= seen.hi) row = end;
      for (; row < end; ++row) {
        if (blocks_[count_].rows == height || !blocks_[count_].takes(row)) next_block();
        blocks_[count_].add(row, seen.lo, seen.hi);
      }
    }
    if (blocks_[count_].rows > 0) ++count_;
  }

  void next_block() {
    if (++count_ == 2) flush();
  }

  void flush() {
    attend_blocks<Dot>(call_, queries_, blocks_, count_, *group_, ahead_);
    if (count_ > 0) ahead_ = {};
    count_ = 0;
    blocks_[0].clear();
    blocks_[1].clear();
  }

  const AttendCall& call_;
  Queries<Dot> queries_;
  int64_t all_lo_ = 0, all_hi_ = INT64_MAX;  // what every row sees
  const KvGroup* group_ = nullptr;
  KvGroup ahead_;
  int count_ = 0;  // whole blocks that wait
  Block<Dot> blocks_[2];
};

template <typename Dot>
void attend(const AttendCall& call) {
  Attend<Dot>(call).run();
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
