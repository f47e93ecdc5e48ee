// One GEMM call, and the functions that serve it.
//
// out[M, N] = a[M, K] x weight[K, N], operands 16-bit, accumulation fp32 in the named order of docs/numerics.md §2. The
// weight lies in panels (panels.h). A kernel is a plain function: it may be called from any thread, keeps no state but
// a scratch buffer per thread, and never splits work by itself: the caller deals out columns (in multiples of 16) or
// rows, and any such division gives the same bits. Every thread that calls one holds a ScopedFlushDenormals.
//
// This header is included by files compiled for one instruction set: plain data and extern functions only, nothing
// inline.
#pragma once

#include <cstdint>

namespace spyre::kernels {

enum class GemmStore : uint8_t {
  kF32,        // out is float: the accumulator as it is
  kRounded16,  // out is uint16_t: rounded once to the kernel's dtype
};

struct GemmRange {
  int64_t first_column = 0;
  int64_t columns = 0;
};

// REQUIRES: rows >= 1, k >= 0, first_column a multiple of 16, columns >= 1, first_column + columns <= N of the weight.
// Element (m, n) of the result is out[m * ldo + n] for first_column <= n < first_column + columns; nothing else is
// written. `a` needs no alignment and `lda` may exceed k; `panels` is the whole weight, 64-byte aligned for speed.
// `out` overlaps neither.
struct GemmCall {
  const uint16_t* a = nullptr;
  int64_t lda = 0;  // elements between rows
  int64_t rows = 0;
  const uint16_t* panels = nullptr;
  int64_t k = 0;
  int64_t first_column = 0;
  int64_t columns = 0;
  void* out = nullptr;
  int64_t ldo = 0;  // elements between rows
  GemmStore store = GemmStore::kF32;
  // Further columns of the same product, under the same rules, disjoint from each other and from the first ones: a
  // share of a fused weight has a piece of each part. `a` is then prepared once for all of them. The bits are those of
  // separate calls.
  const GemmRange* more = nullptr;
  int64_t more_count = 0;
  // kF32 only: start from what stands in `out` in place of +0. This is how a K split over several calls goes on; cut at
  // multiples of 2 for `pair`, of 32 for `tile`.
  bool accumulate = false;
};

// --- for the kernels ---

// The calling thread's scratch memory, 64-byte aligned. Its first use in a thread allocates (address space; pages come
// as they are touched), so warm-up runs each kernel once per thread.
constexpr int64_t kGemmScratchBytes = 1 << 20;
void* gemm_scratch();

void gemm_f16_portable(const GemmCall& call);
void gemm_f16_avx2(const GemmCall& call);
void gemm_f16_avx512(const GemmCall& call);
void gemm_f16_avx512_wide(const GemmCall& call);
void gemm_bf16_pair_portable(const GemmCall& call);
void gemm_bf16_pair_avx2(const GemmCall& call);
void gemm_bf16_pair_avx512(const GemmCall& call);
void gemm_bf16_pair_avx512_wide(const GemmCall& call);
void gemm_bf16_pair_avx512_bf16(const GemmCall& call);
void gemm_bf16_tile_portable(const GemmCall& call);
void gemm_bf16_tile_avx2(const GemmCall& call);
void gemm_bf16_tile_avx512(const GemmCall& call);
void gemm_bf16_tile_amx(const GemmCall& call);

}  // namespace spyre::kernels
