// The GEMM on fused multiply-adds, written once over a class of 16 fp32 lanes (V) and compiled in each instruction
// set's own file, which includes this in an anonymous namespace. No includes, and nothing with external linkage.
//
// V has
// - zero, load and store (16 fp32), broadcast(const float*), fma(a, b, c), add;
// - load_f16(const uint16_t*), store_f16, store_bf16;
// - Raw load_raw(const uint16_t*): 16 bf16 pairs as they lie; even(Raw) and odd(Raw): one of each pair, widened;
// - kMaxRows, the rows of a register tile, and columns_for(rows), its width in 16-column vectors: rows x width
//   accumulators, width weights and one broadcast fit the registers; kMaxEvenOddRows and even_odd_columns_for are
//   the same for `tile`, which has two accumulators per element.
//
// Blocking. Rows in blocks of at most 96 (96 x 768 fp32 of `a` = 288 KiB), K in blocks of at most 768 (a panel block
// is 96 KiB of 16-bit weights, kept in L2 while the row tiles advance), columns in strips of four panels when there
// are several K blocks, so that their fp32 partial sums (96 KiB) stay in L2 too. `a` is widened once per row block
// and strip; with one K block (K <= 768) the strip is all columns. A single row tile has nothing to reuse a panel
// block for: its K block is as long as the scratch allows.

constexpr int64_t kRowBlock = 96;
constexpr int64_t kKBlock = 768;
constexpr int64_t kStripPanels = 4;
constexpr int64_t kAStride = kKBlock + 16;  // rows never 4 KiB apart: they would share one L1 set
constexpr int64_t kAFloats = kRowBlock * kAStride;
constexpr int64_t kPartialFloats = kRowBlock * kStripPanels * 64;
constexpr int64_t kWideFloats = kKBlock * 64;
static_assert((kAFloats + kPartialFloats + kWideFloats) * 4 <= kGemmScratchBytes);

#define SPYRE_UNROLL _Pragma("GCC unroll 16")
#define SPYRE_TILE __attribute__((noinline))  // each register tile gets its own register allocation

// A weight panel seen at 16-column vector `lane`: as stored, or widened to fp32.
template <class V>
struct F16Weights {
  using Element = uint16_t;
  static constexpr int64_t kPerVector = 16;
  static constexpr int64_t kPerK = 64;
  static inline __attribute__((always_inline)) V load(const Element* p) { return V::load_f16(p); }
};
// Widened panel block: groups of G vectors, [vectors / G][k][16 G], so that a register tile reads one contiguous
// stream.
template <class V, int G>
struct WideWeights {
  using Element = float;
  static constexpr int64_t kPerVector = 16;
  static constexpr int64_t kPerK = 16 * G;
  struct Raw {
    V even, odd;
  };
  static inline __attribute__((always_inline)) V load(const Element* p) { return V::load(p); }
  static inline __attribute__((always_inline)) Raw load_raw(const Element* p) {
    return {V::load(p), V::load(p + kPerK)};
  }
  static inline __attribute__((always_inline)) V even(const Raw& r) { return r.even; }
  static inline __attribute__((always_inline)) V odd(const Raw& r) { return r.odd; }
};
template <class V>
struct PairWeights {
  using Element = uint16_t;
  static constexpr int64_t kPerVector = 32;
  static constexpr int64_t kPerK = 64;
  using Raw = typename V::Raw;
  static inline __attribute__((always_inline)) Raw load_raw(const Element* p) { return V::load_raw(p); }
  static inline __attribute__((always_inline)) V even(const Raw& r) { return V::even(r); }
  static inline __attribute__((always_inline)) V odd(const Raw& r) { return V::odd(r); }
};

// Which weights a register tile asks for while it multiplies: a row of cache lines per stored row of its own.
// - What lies 4 KiB ahead of itself. The hardware's prefetcher stops at each page, and a tile of several rows leaves
// too
//   few loads in flight to cover that: M = 4 from memory goes from 72 to 91% of a stream read.
// - Half the lines of the next panel block: two row tiles bring it along, so that memory works while they compute. When
//   only the first of several row tiles meets memory, it waits for all of it.
// Widened panels are in L2 already.
struct Ahead {
  const uint16_t* at = nullptr;
  bool half = false;
};
inline Ahead same_panel(const uint16_t* b) {
  return {b + 2048, false};
}
inline Ahead half_panel(const uint16_t* next, int64_t half, int64_t row_words) {
  return {next + half * row_words / 2, true};
}

// The next block goes to L2: it is larger than L1, where the rows of `a` have to stay.
template <class B, int kLines>
inline __attribute__((always_inline)) void ask(Ahead& ahead) {
  if constexpr (sizeof(typename B::Element) == 2) {
    if (ahead.half) {
      for (int i = 0; i < kLines / 2; ++i) __builtin_prefetch(ahead.at + 32 * i, 0, 2);
    } else {
      for (int i = 0; i < kLines; ++i) __builtin_prefetch(ahead.at + 32 * i);
    }
    ahead.at += kLines * 32;
  }
}

// Register tiles: c[R][16 C] (row stride ldc) += a[R][k] x b, k ascending.
template <class V, class B, int R, int C>
SPYRE_TILE void sequential_tile(const float* a, int64_t lda, const typename B::Element* b, int64_t k, float* c,
                                int64_t ldc, Ahead ahead) {
  V acc[R][C];
  SPYRE_UNROLL
  for (int r = 0; r < R; ++r) {
    SPYRE_UNROLL
    for (int j = 0; j < C; ++j) acc[r][j] = V::load(c + r * ldc + 16 * j);
  }
  for (int64_t i = 0; i < k; ++i) {
    ask<B, 2>(ahead);
    V w[C];
    SPYRE_UNROLL
    for (int j = 0; j < C; ++j) w[j] = B::load(b + j * B::kPerVector);
    SPYRE_UNROLL
    for (int r = 0; r < R; ++r) {
      const V x = V::broadcast(a + r * lda + i);
      SPYRE_UNROLL
      for (int j = 0; j < C; ++j) acc[r][j] = V::fma(x, w[j], acc[r][j]);
    }
    b += B::kPerK;
  }
  SPYRE_UNROLL
  for (int r = 0; r < R; ++r) {
    SPYRE_UNROLL
    for (int j = 0; j < C; ++j) acc[r][j].store(c + r * ldc + 16 * j);
  }
}

// k counts elements and is even; the odd element of each pair goes first.
template <class V, class B, int R, int C>
SPYRE_TILE void pair_tile(const float* a, int64_t lda, const typename B::Element* b, int64_t k, float* c, int64_t ldc,
                          Ahead ahead) {
  V acc[R][C];
  SPYRE_UNROLL
  for (int r = 0; r < R; ++r) {
    SPYRE_UNROLL
    for (int j = 0; j < C; ++j) acc[r][j] = V::load(c + r * ldc + 16 * j);
  }
  for (int64_t i = 0; i < k; i += 2) {
    ask<B, 4>(ahead);
    V w[C];
    SPYRE_UNROLL
    for (int j = 0; j < C; ++j) w[j] = B::odd(B::load_raw(b + j * B::kPerVector));
    SPYRE_UNROLL
    for (int r = 0; r < R; ++r) {
      const V x = V::broadcast(a + r * lda + i + 1);
      SPYRE_UNROLL
      for (int j = 0; j < C; ++j) acc[r][j] = V::fma(x, w[j], acc[r][j]);
    }
    // The pairs are read again, from L1: kept, they would need C more registers than there are.
    __asm__("" : "+r"(b));
    SPYRE_UNROLL
    for (int j = 0; j < C; ++j) w[j] = B::even(B::load_raw(b + j * B::kPerVector));
    SPYRE_UNROLL
    for (int r = 0; r < R; ++r) {
      const V x = V::broadcast(a + r * lda + i);
      SPYRE_UNROLL
      for (int j = 0; j < C; ++j) acc[r][j] = V::fma(x, w[j], acc[r][j]);
    }
    b += 2 * B::kPerK;
  }
  SPYRE_UNROLL
  for (int r = 0; r < R; ++r) {
    SPYRE_UNROLL
    for (int j = 0; j < C; ++j) acc[r][j].store(c + r * ldc + 16 * j);
  }
}

// k counts elements and is a multiple of 32. Two accumulators per element; the sum itself stays in memory, touched once
// per 32 fused multiply-adds.
template <class V, class B, int R, int C>
SPYRE_TILE void even_odd_tile(const float* a, int64_t lda, const typename B::Element* b, int64_t k, float* c,
                              int64_t ldc, Ahead ahead) {
  for (int64_t first = 0; first < k; first += 32) {
    V even[R][C], odd[R][C];
    SPYRE_UNROLL
    for (int r = 0; r < R; ++r) {
      SPYRE_UNROLL
      for (int j = 0; j < C; ++j) even[r][j] = odd[r][j] = V::zero();
    }
    for (int64_t i = first; i < first + 32; i += 2) {
      ask<B, 4>(ahead);
      typename B::Raw raw[C];
      V w[C];
      SPYRE_UNROLL
      for (int j = 0; j < C; ++j) {
        raw[j] = B::load_raw(b + j * B::kPerVector);
        w[j] = B::even(raw[j]);
      }
      SPYRE_UNROLL
      for (int r = 0; r < R; ++r) {
        const V x = V::broadcast(a + r * lda + i);
        SPYRE_UNROLL
        for (int j = 0; j < C; ++j) even[r][j] = V::fma(x, w[j], even[r][j]);
      }
      SPYRE_UNROLL
      for (int j = 0; j < C; ++j) w[j] = B::odd(raw[j]);
      SPYRE_UNROLL
      for (int r = 0; r < R; ++r) {
        const V x = V::broadcast(a + r * lda + i + 1);
        SPYRE_UNROLL
        for (int j = 0; j < C; ++j) odd[r][j] = V::fma(x, w[j], odd[r][j]);
      }
      b += 2 * B::kPerK;
    }
    SPYRE_UNROLL
    for (int r = 0; r < R; ++r) {
      SPYRE_UNROLL
      for (int j = 0; j < C; ++j) {
        float* sum = c + r * ldc + 16 * j;
        V::add(V::load(sum), V::add(even[r][j], odd[r][j])).store(sum);
      }
    }
  }
}

template <int G>
inline float* wide_at(float* wide, int64_t k, int64_t i, int64_t vector) {
  return wide + (vector / G * k + i) * 16 * G + vector % G * 16;
}

// How each order reads `a` and the weight, directly and widened. `kMultiple`: what the stored K is padded to.
template <class V_>
struct F16Sequential {
  using V = V_;
  static constexpr int64_t kMultiple = 1;
  static constexpr int columns_for(int rows) { return V::columns_for(rows); }
  static constexpr int kMaxRows = V::kMaxRows;
  static constexpr int kWideGroup = V::columns_for(V::kMaxRows);
  static constexpr bool kSwapWide = false;
  template <int R, int C>
  static void direct(const float* a, int64_t lda, const uint16_t* b, int64_t k, float* c, int64_t ldc, Ahead ahead) {
    sequential_tile<V, F16Weights<V>, R, C>(a, lda, b, k, c, ldc, ahead);
  }
  template <int R, int C>
  static void wide(const float* a, int64_t lda, const float* b, int64_t k, float* c, int64_t ldc) {
    sequential_tile<V, WideWeights<V, kWideGroup>, R, C>(a, lda, b, k, c, ldc, {});
  }
  static constexpr int64_t kVectorElements = 16;
  static void widen(const uint16_t* b, int64_t k, int vectors, float* out) {
    for (int64_t i = 0; i < k; ++i) {
      for (int j = 0; j < vectors; ++j) V::load_f16(b + i * 64 + 16 * j).store(wide_at<kWideGroup>(out, k, i, j));
    }
  }
  static void widen_a(const uint16_t* a, int64_t k, float* out) {
    int64_t i = 0;
    for (; i + 16 <= k; i += 16) V::load_f16(a + i).store(out + i);
    if (i == k) return;
    alignas(64) uint16_t rest[16] = {};
    for (int64_t j = 0; i + j < k; ++j) rest[j] = a[i + j];
    V::load_f16(rest).store(out + i);
  }
  static void round(const float* c, uint16_t* out) { V::load(c).store_f16(out); }
};

template <class V>
struct Bf16Common {
  static constexpr int64_t kVectorElements = 32;
  static void widen_a(const uint16_t* a, int64_t k, float* out) {
    for (int64_t i = 0; i < k; ++i) {
      const uint32_t bits = uint32_t{a[i]} << 16;
      __builtin_memcpy(out + i, &bits, 4);
    }
  }
  static void round(const float* c, uint16_t* out) { V::load(c).store_bf16(out); }
};

template <class V_>
struct Bf16Pair : Bf16Common<V_> {
  using V = V_;
  static constexpr int64_t kMultiple = 2;
  static constexpr int columns_for(int rows) { return V::columns_for(rows); }
  static constexpr int kMaxRows = V::kMaxRows;
  static constexpr int kWideGroup = V::columns_for(V::kMaxRows);
  static constexpr bool kSwapWide = true;  // odd, even: then `pair` is `sequential` over swapped elements
  template <int R, int C>
  static void direct(const float* a, int64_t lda, const uint16_t* b, int64_t k, float* c, int64_t ldc, Ahead ahead) {
    pair_tile<V, PairWeights<V>, R, C>(a, lda, b, k, c, ldc, ahead);
  }
  template <int R, int C>
  static void wide(const float* a, int64_t lda, const float* b, int64_t k, float* c, int64_t ldc) {
    sequential_tile<V, WideWeights<V, kWideGroup>, R, C>(a, lda, b, k, c, ldc, {});
  }
  static void widen(const uint16_t* b, int64_t k, int vectors, float* out) {
    for (int64_t i = 0; i < k; i += 2) {
      for (int j = 0; j < vectors; ++j) {
        const auto raw = V::load_raw(b + i * 64 + 32 * j);
        V::odd(raw).store(wide_at<kWideGroup>(out, k, i, j));
        V::even(raw).store(wide_at<kWideGroup>(out, k, i + 1, j));
      }
    }
  }
};

template <class V_>
struct Bf16Tile : Bf16Common<V_> {
  using V = V_;
  static constexpr int64_t kMultiple = 32;
  // Even and odd sums double the accumulators.
  static constexpr int kMaxRows = V::kMaxEvenOddRows;
  static constexpr int columns_for(int rows) { return V::even_odd_columns_for(rows); }
  static constexpr int kWideGroup = V::even_odd_columns_for(V::kMaxEvenOddRows);
  static constexpr bool kSwapWide = false;
  template <int R, int C>
  static void direct(const float* a, int64_t lda, const uint16_t* b, int64_t k, float* c, int64_t ldc, Ahead ahead) {
    even_odd_tile<V, PairWeights<V>, R, C>(a, lda, b, k, c, ldc, ahead);
  }
  template <int R, int C>
  static void wide(const float* a, int64_t lda, const float* b, int64_t k, float* c, int64_t ldc) {
    even_odd_tile<V, WideWeights<V, kWideGroup>, R, C>(a, lda, b, k, c, ldc, {});
  }
  static void widen(const uint16_t* b, int64_t k, int vectors, float* out) {
    for (int64_t i = 0; i < k; i += 2) {
      for (int j = 0; j < vectors; ++j) {
        const auto raw = V::load_raw(b + i * 64 + 32 * j);
        V::even(raw).store(wide_at<kWideGroup>(out, k, i, j));
        V::odd(raw).store(wide_at<kWideGroup>(out, k, i + 1, j));
      }
    }
  }
};

// Calls order::direct or order::wide for run-time rows and vectors. Only widths up to columns_for(R) are compiled.
template <class Order, bool kWide, int R, int C>
void call_tile(int columns, const float* a, int64_t lda, const void* b, int64_t k, float* c, int64_t ldc, Ahead ahead) {
  if (columns == C) {
    if constexpr (kWide) {
      Order::template wide<R, C>(a, lda, static_cast<const float*>(b), k, c, ldc);
    } else {
      Order::template direct<R, C>(a, lda, static_cast<const uint16_t*>(b), k, c, ldc, ahead);
    }
  } else if constexpr (C > 1) {
    call_tile<Order, kWide, R, C - 1>(columns, a, lda, b, k, c, ldc, ahead);
  }
}
template <class Order, bool kWide, int R = 1>
void call_tile_rows(int rows, int columns, const float* a, int64_t lda, const void* b, int64_t k, float* c, int64_t ldc,
                    Ahead ahead) {
  if (rows == R) {
    call_tile<Order, kWide, R, kWide ? Order::kWideGroup : Order::columns_for(R)>(columns, a, lda, b, k, c, ldc, ahead);
  } else if constexpr (R < Order::kMaxRows) {
    call_tile_rows<Order, kWide, R + 1>(rows, columns, a, lda, b, k, c, ldc, ahead);
  }
}

inline int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
inline int64_t min_of(int64_t a, int64_t b) {
  return a < b ? a : b;
}
inline int64_t max_of(int64_t a, int64_t b) {
  return a > b ? a : b;
}

inline GemmRange range_of(const GemmCall& g, int64_t index) {
  return index == 0 ? GemmRange{g.first_column, g.columns} : g.more[index - 1];
}

// A part of the result that is held as fp32: `rows` rows from `row`, 16-column vectors [vector, vector + vectors), of
// which columns up to `end` are asked for.
struct Patch {
  int64_t row, rows, vector, vectors, end;
};

// Where the sums of a patch start from: zero, or what stands in `out`.
inline void begin_patch(const GemmCall& g, const Patch& p, float* c, int64_t ldc) {
  const int64_t width = p.vectors * 16;
  const int64_t valid = min_of(p.end - p.vector * 16, width);
  for (int64_t r = 0; r < p.rows; ++r) {
    float* to = c + r * ldc;
    if (!g.accumulate) {
      __builtin_memset(to, 0, static_cast<unsigned long>(width) * 4);
      continue;
    }
    const float* from = static_cast<const float*>(g.out) + (p.row + r) * g.ldo + p.vector * 16;
    for (int64_t n = 0; n < width; ++n) to[n] = n < valid ? from[n] : 0.0f;
  }
}

template <class Order>
void finish_patch(const GemmCall& g, const Patch& p, const float* c, int64_t ldc) {
  const int64_t valid = min_of(p.end - p.vector * 16, p.vectors * 16);
  for (int64_t r = 0; r < p.rows; ++r) {
    const float* from = c + r * ldc;
    const int64_t at = (p.row + r) * g.ldo + p.vector * 16;
    if (g.store == GemmStore::kF32) {
      __builtin_memcpy(static_cast<float*>(g.out) + at, from, static_cast<unsigned long>(valid) * 4);
      continue;
    }
    uint16_t* to = static_cast<uint16_t*>(g.out) + at;
    int64_t n = 0;
    for (; n + 16 <= valid; n += 16) Order::round(from + n, to + n);
    if (n == valid) continue;
    uint16_t rest[16];
    Order::round(from + n, rest);
    for (int64_t i = 0; n + i < valid; ++i) to[n + i] = rest[i];
  }
}

// One row block times one K block: `a` widened row by row, zero up to `padded` elements, pairs swapped if asked.
template <class Order>
void prepare_a(const GemmCall& g, int64_t row, int64_t rows, int64_t k0, int64_t k, int64_t padded, bool swap,
               float* to, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r) {
    float* out = to + r * stride;
    Order::widen_a(g.a + (row + r) * g.lda + k0, k, out);
    for (int64_t i = k; i < padded; ++i) out[i] = 0.0f;
    if (!swap) continue;
    for (int64_t i = 0; i < padded; i += 2) {
      const float even = out[i];
      out[i] = out[i + 1];
      out[i + 1] = even;
    }
  }
}

// A row block advances over one panel block in row tiles of equal height (16 rows are 6 + 5 + 5, not 6 + 6 + 4).
// Columns outside, rows inside: the strip of weights that all row tiles share is what stays in L1.
// `next`: the panel block after this one, or null; `known`: this one has been asked for. Returns whether the next one
// has been.
template <class Order, bool kWide>
bool multiply_panel_block(int64_t rows, const float* a, int64_t a_stride, const void* b, int64_t b_vector_bytes,
                          int64_t vectors, int64_t k, float* c, int64_t ldc, const uint16_t* next, bool known) {
  const int64_t tiles = ceil_div(rows, Order::kMaxRows);
  const int widest = kWide ? Order::kWideGroup : Order::columns_for(static_cast<int>(ceil_div(rows, tiles)));
  const int64_t row_words = Order::kMultiple == 1 ? 64 : 128;
  int64_t halves = 0;  // of the next block, asked for
  for (int64_t v = 0; v < vectors; v += widest) {
    const int columns = static_cast<int>(min_of(widest, vectors - v));
    for (int64_t t = 0, row = 0; t < tiles; ++t) {
      const int height = static_cast<int>((rows - row) / (tiles - t));
      const void* at = static_cast<const char*>(b) + v * b_vector_bytes;
      const bool asks = !kWide && next != nullptr && halves < 2 && tiles > 1 && (known || t > 0);
      const Ahead ahead = asks    ? half_panel(next, halves++, row_words)
                          : kWide ? Ahead{}
                                  : same_panel(static_cast<const uint16_t*>(at));
      call_tile_rows<Order, kWide>(height, columns, a + row * a_stride, a_stride, at, k, c + row * ldc + v * 16, ldc,
                                   ahead);
      row += height;
    }
  }
  return halves == 2;
}

// How a row block goes through K, and where its operands lie in scratch.
template <class Order, bool kWide>
struct RowBlock {
  const GemmCall& g;
  int64_t row, rows;
  int64_t k_blocks, k_block, a_stride, panel_elements;
  float *a, *partial, *wide;
  bool prepared = false;            // one K block: `a` is prepared once for all columns
  const uint16_t* asked = nullptr;  // the panel block that has been asked for

  RowBlock(const GemmCall& call, int64_t first, int64_t count) : g(call), row(first), rows(count) {
    const int64_t k_limit = !kWide && rows <= Order::kMaxRows ? (kAFloats / rows - 16) / 32 * 32 : kKBlock;
    k_blocks = max_of(1, ceil_div(g.k, k_limit));
    k_block = min_of(k_limit, ceil_div(ceil_div(g.k, k_blocks), 32) * 32);
    a_stride = k_block + 16;
    panel_elements = ceil_div(g.k, Order::kMultiple) * Order::kMultiple * 64;
    a = static_cast<float*>(gemm_scratch());
    partial = a + kAFloats;
    wide = partial + kPartialFloats;
  }
};

// The panel block behind the one that ends at vector `end`, in K block i of the patch: of the next panel, of the first
// one's next K block, or of the next strip; null behind the last column.
template <class Order, bool kWide>
const uint16_t* after_panel(const RowBlock<Order, kWide>& block, const Patch& patch, int64_t i, int64_t end) {
  const uint16_t* panels = block.g.panels;
  const int64_t v1 = patch.vector + patch.vectors;
  if (end < v1) return panels + end / 4 * block.panel_elements + i * block.k_block * 64;
  if (i + 1 < block.k_blocks) return panels + patch.vector / 4 * block.panel_elements + (i + 1) * block.k_block * 64;
  return v1 * 16 < patch.end ? panels + v1 / 4 * block.panel_elements : nullptr;
}

// Vectors [patch.vector, + patch.vectors) of one strip, from the first K block to the last.
template <class Order, bool kWide>
void run_strip(RowBlock<Order, kWide>& block, const Patch& patch) {
  const GemmCall& g = block.g;
  const int64_t ldc = patch.vectors * 16, v1 = patch.vector + patch.vectors;
  begin_patch(g, patch, block.partial, ldc);
  for (int64_t i = 0; i < block.k_blocks; ++i) {
    const int64_t k0 = i * block.k_block;
    const int64_t k = min_of(block.k_block, g.k - k0);
    const int64_t padded = ceil_div(k, Order::kMultiple) * Order::kMultiple;
    if (!block.prepared) {
      prepare_a<Order>(g, patch.row, patch.rows, k0, k, padded, kWide && Order::kSwapWide, block.a, block.a_stride);
      block.prepared = block.k_blocks == 1;
    }
    for (int64_t v = patch.vector; v < v1;) {
      const int64_t lane = v % 4;
      const int64_t vectors = min_of(4 - lane, v1 - v);
      const uint16_t* b = g.panels + v / 4 * block.panel_elements + k0 * 64 + lane * Order::kVectorElements;
      float* c = block.partial + (v - patch.vector) * 16;
      if constexpr (kWide) {
        Order::widen(b, padded, static_cast<int>(vectors), block.wide);
        multiply_panel_block<Order, true>(patch.rows, block.a, block.a_stride, block.wide, padded * 64, vectors, padded,
                                          c, ldc, nullptr, true);
      } else {
        const uint16_t* next = after_panel(block, patch, i, v + vectors);
        const bool asked =
            multiply_panel_block<Order, false>(patch.rows, block.a, block.a_stride, b, Order::kVectorElements * 2,
                                               vectors, padded, c, ldc, next, block.asked == b);
        block.asked = asked ? next : nullptr;
      }
      v += vectors;
    }
  }
  finish_patch<Order>(g, patch, block.partial, ldc);
}

template <class Order, bool kWide>
void run_row_block(const GemmCall& g, int64_t row, int64_t rows) {
  RowBlock<Order, kWide> block(g, row, rows);
  const int64_t strip = (block.k_blocks == 1 ? 1 : kStripPanels) * 4;
  for (int64_t r = 0; r <= g.more_count; ++r) {
    const GemmRange range = range_of(g, r);
    const int64_t end = range.first_column + range.columns, vector_end = ceil_div(end, 16);
    for (int64_t v0 = range.first_column / 16; v0 < vector_end;) {
      const int64_t v1 = min_of(vector_end, (v0 / strip + 1) * strip);
      run_strip(block, {row, rows, v0, v1 - v0, end});
      v0 = v1;
    }
  }
}

// kWidenRows: from this many rows on, each panel block is first widened to fp32 scratch. It pays where converts, shifts
// and masks take the same ports as the multiply-adds; the panel is then converted once for all row tiles.
constexpr int64_t kNeverWiden = INT64_MAX;

template <class Order, int64_t kWidenRows>
void run_gemm(const GemmCall& g) {
  const int64_t blocks = ceil_div(g.rows, kRowBlock);
  for (int64_t i = 0, row = 0; i < blocks; ++i) {
    const int64_t rows = (g.rows - row) / (blocks - i);
    if constexpr (kWidenRows == kNeverWiden) {
      run_row_block<Order, false>(g, row, rows);
    } else {
      rows >= kWidenRows ? run_row_block<Order, true>(g, row, rows) : run_row_block<Order, false>(g, row, rows);
    }
    row += rows;
  }
}
