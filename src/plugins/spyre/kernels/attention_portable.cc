#include "plugins/spyre/kernels/simd_portable.h"
// The lanes come first, then the orders.
#include "plugins/spyre/kernels/attention_dots-inl.h"
// And what is built on both.
#include "plugins/spyre/kernels/attention-inl.h"

namespace spyre::kernels {

constinit const AttentionKernels kAttentionKernelsPortable[3] = {
    attention_table<SequentialDot>("attention_f16_portable", DotOrder::kSequential, CpuLevel::kPortable),
    attention_table<PairDot>("attention_bf16_pair_portable", DotOrder::kPair, CpuLevel::kPortable),
    attention_table<TileDot>("attention_bf16_tile_portable", DotOrder::kTile, CpuLevel::kPortable)};

}  // namespace spyre::kernels
