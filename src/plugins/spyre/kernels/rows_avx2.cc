#if defined(__x86_64__)
#include "plugins/spyre/kernels/simd_avx2.h"
// The lanes come first.
#include "plugins/spyre/kernels/rows-inl.h"

namespace spyre::kernels {

constinit const RowKernels kRowKernelsAvx2[2] = {row_table<F16>("f16_avx2", CpuLevel::kAvx2),
                                                 row_table<Bf16>("bf16_avx2", CpuLevel::kAvx2)};

}  // namespace spyre::kernels
#endif
