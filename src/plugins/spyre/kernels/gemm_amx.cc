// bf16 `tile` on AMX: many rows on tiles; few rows, which only wait for memory, on AVX-512 in the same order.
#include "plugins/spyre/kernels/gemm_call.h"

#if defined(__AMX_BF16__)

#include <immintrin.h>

namespace spyre::kernels {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette, start_row;
  uint8_t reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == 64);

constexpr TileConfig kEightFullTiles = {1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

// Own asm: the compiler's _tile_loadconfig declares 8 bytes of the configuration as read, and then drops the stores
// that fill the rest; and its tile numbers are tokens, not constants.
struct AmxTiles {
  // In each call: another library in this thread (a framework's own kernels) may have configured or released the tiles.
  static void configure() { __asm__ volatile("ldtilecfg %0" : : "m"(kEightFullTiles)); }
  template <int t>
  static inline __attribute__((always_inline)) void load(const void* p, int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(t) : "memory");
  }
  template <int t>
  static inline __attribute__((always_inline)) void store(void* p, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(stride), "i"(t) : "memory");
  }
  template <int c, int a, int b>
  static inline __attribute__((always_inline)) void dot() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }
  static inline __attribute__((always_inline)) void store_bf16(const float* from, uint16_t* to) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from)));
  }
};

#include "plugins/spyre/kernels/gemm_tiles-inl.h"

// Up to here one row tile of AVX-512 covers the rows in one pass over the weights, at memory speed.
constexpr int64_t kFewRows = 4;

}  // namespace

void gemm_bf16_tile_amx(const GemmCall& call) {
  call.rows <= kFewRows ? gemm_bf16_tile_avx512(call) : run_tiles<AmxTiles>(call);
}

}  // namespace spyre::kernels

#endif
