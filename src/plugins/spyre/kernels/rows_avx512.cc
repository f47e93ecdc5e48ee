#if defined(__x86_64__)
#include "plugins/spyre/kernels/simd_avx512.h"
// The lanes come first.
#include "plugins/spyre/kernels/rows-inl.h"

namespace spyre::kernels {

void row_kernels_avx512(RowKernels& f16, RowKernels& bf16) {
  fill_table<F16>(f16, CpuLevel::kAvx512, "f16_avx512");
  fill_table<Bf16>(bf16, CpuLevel::kAvx512, "bf16_avx512");
}

}  // namespace spyre::kernels
#endif
