#include "plugins/spyre/kernels/attention.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>

#include "base/error.h"
#include "plugins/spyre/kernels/rows.h"

namespace spyre::kernels {
namespace {

#if defined(__x86_64__)
constexpr const AttentionKernels* kSets[] = {kAttentionKernelsAvx512Bf16, kAttentionKernelsAvx512,
                                             kAttentionKernelsAvx2, kAttentionKernelsPortable};
#else
constexpr const AttentionKernels* kSets[] = {kAttentionKernelsPortable};
#endif

using Tables = std::array<AttentionKernels, 3 * std::size(kSets)>;

const Tables& tables() {
  static const Tables all = [] {
    Tables t{};
    for (size_t i = 0; i < std::size(kSets); ++i) std::copy_n(kSets[i], 3, &t[3 * i]);
    return t;
  }();
  return all;
}

}  // namespace

void attend_reset(const AttendState& state, int64_t rows, int64_t head_dim) {
  std::fill(state.m, state.m + rows, -std::numeric_limits<float>::infinity());
  std::fill(state.l, state.l + rows, 0.0f);
  std::fill(state.acc, state.acc + rows * attend_stride(head_dim), 0.0f);
}

AttentionKernelList all_attention_kernels() {
  return {tables().data(), tables().data() + tables().size()};
}

const AttentionKernels& select_attention_kernels(const CpuFeatures& features, DType dtype, DotOrder order) {
  for (const AttentionKernels& table : tables()) {
    if (table.dtype == dtype && table.order == order && level_runs_on(table.level, features)) return table;
  }
  throw_error(ErrorCode::kUnsupported, "no attention kernel for {} in the {} order", to_string(dtype),
              to_string(order));
}

}  // namespace spyre::kernels
