#include "plugins/spyre/kernels/kernel_table.h"

#include <bit>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <new>
#include <random>
#include <vector>

#include "base/error.h"
#include "base/half.h"
#include "base/log.h"
#include "plugins/spyre/kernels/panels.h"

namespace spyre::kernels {
namespace {

constexpr DType kF16 = DType::kF16, kBF16 = DType::kBF16;

// The faster ones of each (dtype, order) first.
constexpr GemmKernels kTable[] = {
#if defined(__x86_64__)
    {"f16_avx512_wide", kF16, DotOrder::kSequential, CpuLevel::kAvx512, gemm_f16_avx512_wide, CoreKind::kWithTiles},
    {"f16_avx512", kF16, DotOrder::kSequential, CpuLevel::kAvx512, gemm_f16_avx512},
    {"f16_avx2", kF16, DotOrder::kSequential, CpuLevel::kAvx2, gemm_f16_avx2},
    {"bf16_pair_avx512_bf16", kBF16, DotOrder::kPair, CpuLevel::kAvx512Bf16, gemm_bf16_pair_avx512_bf16,
     CoreKind::kWithoutTiles},
    {"bf16_pair_avx512_wide", kBF16, DotOrder::kPair, CpuLevel::kAvx512, gemm_bf16_pair_avx512_wide,
     CoreKind::kWithTiles},
    {"bf16_pair_avx512", kBF16, DotOrder::kPair, CpuLevel::kAvx512, gemm_bf16_pair_avx512},
    {"bf16_pair_avx2", kBF16, DotOrder::kPair, CpuLevel::kAvx2, gemm_bf16_pair_avx2},
    {"bf16_tile_amx", kBF16, DotOrder::kTile, CpuLevel::kAmx, gemm_bf16_tile_amx},
    {"bf16_tile_avx512", kBF16, DotOrder::kTile, CpuLevel::kAvx512, gemm_bf16_tile_avx512},
    {"bf16_tile_avx2", kBF16, DotOrder::kTile, CpuLevel::kAvx2, gemm_bf16_tile_avx2},
#endif
    {"f16_portable", kF16, DotOrder::kSequential, CpuLevel::kPortable, gemm_f16_portable},
    {"bf16_pair_portable", kBF16, DotOrder::kPair, CpuLevel::kPortable, gemm_bf16_pair_portable},
    {"bf16_tile_portable", kBF16, DotOrder::kTile, CpuLevel::kPortable, gemm_bf16_tile_portable},
};

struct FreeScratch {
  void operator()(void* p) const { std::free(p); }
};

// Asked only where the tiles exist.
bool tiles_can_be_trusted() {
  static const bool trusted = [] {
    if (amx_self_test()) return true;
    log().warn(
        "AMX: the tile instructions of this CPU do not sum in the `tile` order; using AVX-512 with the same bits");
    return false;
  }();
  return trusted;
}

}  // namespace

bool amx_self_test() {
#if defined(__x86_64__)
  if (!CpuFeatures::detected().amx_bf16) return false;
  ScopedFlushDenormals flush;
  constexpr int64_t kRows = 21, kK = 77, kN = 83;
  std::mt19937 random(5);
  // Any sign and mantissa, exponents 2^-40 to 2^39: every rounding of the sum is exercised, nothing overflows.
  const auto value = [&] { return static_cast<uint16_t>((random() & 0x807fu) | ((87 + random() % 80) << 7)); };
  std::vector<uint16_t> a(kRows * kK), b(kK * kN);
  for (auto& v : a) v = value();
  for (auto& v : b) v = value();
  const PanelLayout layout{DotOrder::kTile, kK, kN};
  std::vector<uint16_t> panels(static_cast<size_t>(layout.elements()));
  pack_panels(layout, SourceOrder::kInOut, b.data(), kN, 0, kN, panels.data());
  std::vector<float> out(kRows * kN);
  gemm_bf16_tile_amx({.a = a.data(),
                      .lda = kK,
                      .rows = kRows,
                      .panels = panels.data(),
                      .k = kK,
                      .first_column = 0,
                      .columns = kN,
                      .out = out.data(),
                      .ldo = kN});
  for (int64_t m = 0; m < kRows; ++m) {
    for (int64_t n = 0; n < kN; ++n) {
      const float want = dot_tile(&a[static_cast<size_t>(m * kK)], &b[static_cast<size_t>(n)], kK, kN);
      if (std::bit_cast<uint32_t>(want) != std::bit_cast<uint32_t>(out[static_cast<size_t>(m * kN + n)])) return false;
    }
  }
  return true;
#else
  return false;
#endif
}

void* gemm_scratch() {
  thread_local std::unique_ptr<void, FreeScratch> scratch;
  if (!scratch) {
    scratch.reset(std::aligned_alloc(64, kGemmScratchBytes));
    if (!scratch) throw std::bad_alloc();
  }
  return scratch.get();
}

bool runs_on(const GemmKernels& kernels, const CpuFeatures& features) {
  switch (kernels.level) {
    case CpuLevel::kPortable:
      return true;
    case CpuLevel::kAvx2:
      return features.avx2;
    case CpuLevel::kAvx512:
      return features.avx512;
    case CpuLevel::kAvx512Bf16:
      return features.avx512_bf16;
    case CpuLevel::kAmx:
      return features.amx_bf16;
  }
  return false;
}

GemmKernelList all_gemm_kernels() {
  return {std::begin(kTable), std::end(kTable)};
}

const GemmKernels& select_kernels(const CpuFeatures& features, DType dtype, DotOrder order) {
  for (const GemmKernels& kernels : kTable) {
    if (kernels.dtype != dtype || kernels.order != order || !runs_on(kernels, features)) continue;
    if (kernels.core == CoreKind::kWithTiles && !features.amx_bf16) continue;
    if (kernels.core == CoreKind::kWithoutTiles && features.amx_bf16) continue;
    // The question runs tile instructions, so it is asked of the machine, not of the features a test passes.
    if (kernels.level == CpuLevel::kAmx && CpuFeatures::detected().amx_bf16 && !tiles_can_be_trusted()) continue;
    return kernels;
  }
  throw_error(ErrorCode::kUnsupported, "no GEMM kernel for {} in the order {}", to_string(dtype), to_string(order));
}

}  // namespace spyre::kernels
