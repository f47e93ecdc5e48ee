#include "plugins/spyre/kernels/simd_portable.h"
// The lanes come first.
#include "plugins/spyre/kernels/rows-inl.h"

namespace spyre::kernels {

constinit const RowKernels kRowKernelsPortable[2] = {row_table<F16>("f16_portable", CpuLevel::kPortable),
                                                     row_table<Bf16>("bf16_portable", CpuLevel::kPortable)};

}  // namespace spyre::kernels
