#if defined(__x86_64__)
#include "plugins/spyre/kernels/simd_avx2.h"
// The lanes come first, then the orders.
#include "plugins/spyre/kernels/attention_dots-inl.h"
// And what is built on both.
#include "plugins/spyre/kernels/attention-inl.h"

namespace spyre::kernels {

constinit const AttentionKernels kAttentionKernelsAvx2[3] = {
    attention_table<SequentialDot>("attention_f16_avx2", DotOrder::kSequential, CpuLevel::kAvx2),
    attention_table<PairDot>("attention_bf16_pair_avx2", DotOrder::kPair, CpuLevel::kAvx2),
    attention_table<TileDot>("attention_bf16_tile_avx2", DotOrder::kTile, CpuLevel::kAvx2)};

}  // namespace spyre::kernels
#endif
