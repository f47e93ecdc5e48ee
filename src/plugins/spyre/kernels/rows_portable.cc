#include "plugins/spyre/kernels/simd_portable.h"
// The lanes come first.
#include "plugins/spyre/kernels/rows-inl.h"

namespace spyre::kernels {

void row_kernels_portable(RowKernels& f16, RowKernels& bf16) {
  fill_table<F16>(f16, CpuLevel::kPortable, "f16_portable");
  fill_table<Bf16>(bf16, CpuLevel::kPortable, "bf16_portable");
}

}  // namespace spyre::kernels
