// The GEMM kernels and how one is chosen.
//
// out[M, N] = a[M, K] x weight[K, N]: the call itself is described in gemm_call.h.
#pragma once

#include <cstdint>

#include "base/cpu.h"
#include "base/dot_orders.h"
#include "base/dtype.h"
#include "plugins/spyre/kernels/gemm_call.h"

namespace spyre::kernels {

// Kernels of one level that differ in speed by the kind of core, told apart by the tiles: the cores with AMX (Sapphire
// Rapids and later) convert and shift on the ports of their FMA units and run vdpbf16ps at half the FMA rate; the AMD
// cores with AVX512_BF16 do neither.
enum class CoreKind : uint8_t { kAny, kWithTiles, kWithoutTiles };

struct GemmKernels {
  const char* name;  // "f16_avx512", "bf16_pair_avx512_bf16", ...
  DType dtype;
  DotOrder order;
  CpuLevel level;  // the least machine that runs it
  void (*gemm)(const GemmCall& call);
  CoreKind core = CoreKind::kAny;
};

// The fastest kernel that `features` run. throws kUnsupported unless (dtype, order) is (f16, sequential), (bf16, pair)
// or (bf16, tile).
const GemmKernels& select_kernels(const CpuFeatures& features, DType dtype, DotOrder order);

// Every kernel of this build, the faster ones of each (dtype, order) first. Tests and benchmarks walk it.
struct GemmKernelList {
  const GemmKernels* first;
  const GemmKernels* last;
  const GemmKernels* begin() const { return first; }
  const GemmKernels* end() const { return last; }
};
GemmKernelList all_gemm_kernels();
bool runs_on(const GemmKernels& kernels, const CpuFeatures& features);

// Compares the tile instructions of this CPU with the scalar `tile` order on a small fixed problem. select_kernels asks
// once per process before it hands out the AMX kernel; when a bit differs it logs a warning and takes the FMA kernel.
bool amx_self_test();

}  // namespace spyre::kernels
