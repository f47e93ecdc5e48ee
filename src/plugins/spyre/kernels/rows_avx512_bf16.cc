#if defined(__x86_64__)
#include "plugins/spyre/kernels/simd_avx512.h"
// The lanes come first.
#include "plugins/spyre/kernels/rows-inl.h"

namespace spyre::kernels {

constinit const RowKernels kRowKernelsAvx512Bf16[2] = {row_table<F16>("f16_avx512_bf16", CpuLevel::kAvx512Bf16),
                                                       row_table<Bf16>("bf16_avx512_bf16", CpuLevel::kAvx512Bf16)};

}  // namespace spyre::kernels
#endif
