// The bf16 `tile` GEMM on 16 x 16 matrix tiles, written over a policy `Tiles` that is either the AMX instructions
// (gemm_amx.cc) or their emulation (gemm_tiles_test.cc, so that packing and blocking are tested on any machine).
// Included inside an anonymous namespace. No includes here, and nothing with external linkage.
//
// Tiles has, for tile registers t = 0..7 of 16 rows x 64 bytes:
// - configure(), before the first use in a call;
// - load<t>(p, stride) and store<t>(p, stride), stride in bytes;
// - dot<c, a, b>(): c += a x b, 16 rows of 32 bf16 by 16 pair rows of 16 columns, in the `tile` order;
// - store_bf16(const float*, uint16_t*): 16 values rounded.
//
// Register block: 2 x 2 result tiles (0-3), two of `a` (4, 5), two of the weight (6, 7): four products per four loads.
// The weight comes straight from the panel: 16 pair rows, 256 bytes apart, are a tile. `a` is packed [rows / 16][k /
// 32][16][32] with zeros past the end: rows of a 4 KiB stride would fall into one L1 set, and tile rows past the matrix
// must not be read.
//
// Blocking: 128 rows x 1024 of K (256 KiB packed, in L2); for each half panel (32 columns) the row blocks advance over
// the same 64 KiB of weights. With several K blocks, columns go in strips of four panels whose fp32 sums (128 KiB) stay
// in L2.

constexpr int64_t kTileRowBlock = 128;
constexpr int64_t kTileKBlock = 1024;
constexpr int64_t kTileStripPanels = 4;
constexpr int64_t kTilePackedElements = kTileRowBlock * kTileKBlock;
constexpr int64_t kTilePartialFloats = kTileRowBlock * kTileStripPanels * 64;
static_assert(kTilePackedElements * 2 + kTilePartialFloats * 4 <= kGemmScratchBytes);

constexpr int64_t kPanelPairRowBytes = 256;
constexpr int64_t kTileElements = 16 * 32;  // of `a`, and of the weight

inline int64_t tile_ceil(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
inline int64_t tile_min(int64_t a, int64_t b) {
  return a < b ? a : b;
}

inline void pack_a_tiles(const GemmCall& g, int64_t row, int64_t rows, int64_t k0, int64_t k, uint16_t* to) {
  const int64_t k_tiles = tile_ceil(k, 32);
  for (int64_t r = 0; r < tile_ceil(rows, 16) * 16; ++r) {
    uint16_t* out = to + r / 16 * k_tiles * kTileElements + r % 16 * 32;
    const uint16_t* in = g.a + (row + r) * g.lda + k0;
    for (int64_t t = 0; t < k_tiles; ++t, out += kTileElements) {
      const int64_t count = r < rows ? tile_min(32, k - t * 32) : 0;
      if (count == 32) {
        __builtin_memcpy(out, in + t * 32, 64);
        continue;
      }
      for (int64_t i = 0; i < 32; ++i) out[i] = i < count ? in[t * 32 + i] : uint16_t{0};
    }
  }
}

// c[16 R][16 C] += over k_tiles. `prefetch`: the weight is met for the first time; fetch two tiles ahead, since tile
// loads keep too few lines in flight to cover memory by themselves.
template <class Tiles, int R, int C>
void tile_block(const uint16_t* a, const uint16_t* b, int64_t k_tiles, float* c, int64_t ldc, bool prefetch) {
  const int64_t c_stride = ldc * 4;
  Tiles::template load<0>(c, c_stride);
  if constexpr (C == 2) Tiles::template load<1>(c + 16, c_stride);
  if constexpr (R == 2) Tiles::template load<2>(c + 16 * ldc, c_stride);
  if constexpr (R == 2 && C == 2) Tiles::template load<3>(c + 16 * ldc + 16, c_stride);
  const uint16_t* a1 = a + k_tiles * kTileElements;
  for (int64_t t = 0; t < k_tiles; ++t) {
    if (prefetch && t + 2 < k_tiles) {
      for (int64_t i = 32; i < 48; ++i) {
        __builtin_prefetch(b + i * 128);
        if constexpr (C == 2) __builtin_prefetch(b + i * 128 + 32);
      }
    }
    Tiles::template load<4>(a, 64);
    Tiles::template load<6>(b, kPanelPairRowBytes);
    Tiles::template dot<0, 4, 6>();
    if constexpr (C == 2) {
      Tiles::template load<7>(b + 32, kPanelPairRowBytes);
      Tiles::template dot<1, 4, 7>();
    }
    if constexpr (R == 2) {
      Tiles::template load<5>(a1, 64);
      Tiles::template dot<2, 5, 6>();
      if constexpr (C == 2) Tiles::template dot<3, 5, 7>();
    }
    a += kTileElements;
    a1 += kTileElements;
    b += 16 * 128;
  }
  Tiles::template store<0>(c, c_stride);
  if constexpr (C == 2) Tiles::template store<1>(c + 16, c_stride);
  if constexpr (R == 2) Tiles::template store<2>(c + 16 * ldc, c_stride);
  if constexpr (R == 2 && C == 2) Tiles::template store<3>(c + 16 * ldc + 16, c_stride);
}

template <class Tiles>
void tile_columns(const uint16_t* a, const uint16_t* b, int64_t row_tiles, int64_t vectors, int64_t k_tiles, float* c,
                  int64_t ldc) {
  for (int64_t r = 0; r < row_tiles; r += 2) {
    const uint16_t* rows = a + r * k_tiles * kTileElements;
    float* to = c + r * 16 * ldc;
    const bool two = r + 1 < row_tiles, first = r == 0;
    if (vectors == 2) {
      two ? tile_block<Tiles, 2, 2>(rows, b, k_tiles, to, ldc, first)
          : tile_block<Tiles, 1, 2>(rows, b, k_tiles, to, ldc, first);
    } else {
      two ? tile_block<Tiles, 2, 1>(rows, b, k_tiles, to, ldc, first)
          : tile_block<Tiles, 1, 1>(rows, b, k_tiles, to, ldc, first);
    }
  }
}

// Columns up to `end` are asked for; vectors [v0, v1) hold the last of them.
inline void tile_begin(const GemmCall& g, int64_t row, int64_t rows, int64_t v0, int64_t v1, int64_t end, float* c) {
  for (int64_t r = 0; r < tile_ceil(rows, 16) * 16; ++r) {
    for (int64_t n = v0 * 16; n < v1 * 16; ++n) {
      const bool from_out = g.accumulate && r < rows && n < end;
      *c++ = from_out ? static_cast<const float*>(g.out)[(row + r) * g.ldo + n] : 0.0f;
    }
  }
}

template <class Tiles>
void tile_finish(const GemmCall& g, int64_t row, int64_t rows, int64_t v0, int64_t v1, int64_t end, const float* c) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t v = v0; v < v1; ++v, c += 16) {
      const int64_t at = (row + r) * g.ldo + v * 16;
      const int64_t count = tile_min(16, end - v * 16);
      if (g.store == GemmStore::kF32) {
        __builtin_memcpy(static_cast<float*>(g.out) + at, c, static_cast<unsigned long>(count) * 4);
        continue;
      }
      uint16_t rounded[16];
      Tiles::store_bf16(c, rounded);
      __builtin_memcpy(static_cast<uint16_t*>(g.out) + at, rounded, static_cast<unsigned long>(count) * 2);
    }
  }
}

// How a row block goes through K, and where its operands lie in scratch.
struct TileRowBlock {
  const GemmCall& g;
  int64_t row, rows;
  int64_t k_blocks, k_block, panel_elements;
  uint16_t* a;
  float* partial;
  bool packed = false;  // one K block: `a` is packed once for all columns

  TileRowBlock(const GemmCall& call, int64_t first, int64_t count) : g(call), row(first), rows(count) {
    k_blocks = g.k > 0 ? tile_ceil(g.k, kTileKBlock) : 1;
    k_block = tile_ceil(tile_ceil(g.k, k_blocks), 32) * 32;
    panel_elements = tile_ceil(g.k, 32) * 32 * 64;
    a = static_cast<uint16_t*>(gemm_scratch());
    partial = reinterpret_cast<float*>(a + kTilePackedElements);
  }
};

// Vectors [v0, v1) of one strip, from the first K block to the last.
template <class Tiles>
void tile_strip(TileRowBlock& block, int64_t v0, int64_t v1, int64_t end) {
  const GemmCall& g = block.g;
  const int64_t ldc = (v1 - v0) * 16;
  tile_begin(g, block.row, block.rows, v0, v1, end, block.partial);
  for (int64_t i = 0; i < block.k_blocks; ++i) {
    const int64_t k0 = i * block.k_block;
    const int64_t k = tile_min(block.k_block, g.k - k0);
    if (!block.packed) {
      pack_a_tiles(g, block.row, block.rows, k0, k, block.a);
      block.packed = block.k_blocks == 1;
    }
    for (int64_t v = v0, next; v < v1; v = next) {
      next = tile_min((v / 2 + 1) * 2, v1);
      const uint16_t* b = g.panels + v / 4 * block.panel_elements + k0 * 64 + v % 4 * 32;
      tile_columns<Tiles>(block.a, b, tile_ceil(block.rows, 16), next - v, tile_ceil(k, 32),
                          block.partial + (v - v0) * 16, ldc);
    }
  }
  tile_finish<Tiles>(g, block.row, block.rows, v0, v1, end, block.partial);
}

template <class Tiles>
void tile_row_block(const GemmCall& g, int64_t row, int64_t rows) {
  TileRowBlock block(g, row, rows);
  const int64_t strip = (block.k_blocks == 1 ? 1 : kTileStripPanels) * 4;
  for (int64_t r = 0; r <= g.more_count; ++r) {
    const GemmRange range = r == 0 ? GemmRange{g.first_column, g.columns} : g.more[r - 1];
    const int64_t end = range.first_column + range.columns, v_end = tile_ceil(end, 16);
    for (int64_t v0 = range.first_column / 16, v1; v0 < v_end; v0 = v1) {
      v1 = tile_min(v_end, (v0 / strip + 1) * strip);
      tile_strip<Tiles>(block, v0, v1, end);
    }
  }
}

template <class Tiles>
void run_tiles(const GemmCall& g) {
  Tiles::configure();
  const int64_t blocks = tile_ceil(g.rows, kTileRowBlock);
  for (int64_t i = 0, row = 0; i < blocks; ++i) {
    const int64_t rows = (g.rows - row) / (blocks - i);
    tile_row_block<Tiles>(g, row, rows);
    row += rows;
  }
}
