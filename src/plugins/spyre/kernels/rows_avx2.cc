#if defined(__x86_64__)
#include "plugins/spyre/kernels/simd_avx2.h"
// The lanes come first.
#include "plugins/spyre/kernels/rows-inl.h"

namespace spyre::kernels {

void row_kernels_avx2(RowKernels& f16, RowKernels& bf16) {
  fill_table<F16>(f16, CpuLevel::kAvx2, "f16_avx2");
  fill_table<Bf16>(bf16, CpuLevel::kAvx2, "bf16_avx2");
}

}  // namespace spyre::kernels
#endif
