#include "plugins/spyre/kernels/attention.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "plugins/spyre/kernels/rows.h"

namespace spyre::kernels {
namespace {

#if defined(__x86_64__)
constexpr int kTables = 12;
#else
constexpr int kTables = 3;
#endif

const std::array<AttentionKernels, kTables>& tables() {
  static const std::array<AttentionKernels, kTables> all = [] {
    std::array<AttentionKernels, kTables> t{};
    AttentionKernels* next = t.data();
#if defined(__x86_64__)
    attention_kernels_avx512_bf16(next);
    attention_kernels_avx512(next + 3);
    attention_kernels_avx2(next + 6);
    next += 9;
#endif
    attention_kernels_portable(next);
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
  return {tables().data(), tables().data() + kTables};
}

const AttentionKernels& select_attention_kernels(const CpuFeatures& features, DType dtype, DotOrder order) {
  for (const AttentionKernels& table : tables()) {
    if (table.dtype == dtype && table.order == order && level_runs_on(table.level, features)) return table;
  }
  throw_error(ErrorCode::kUnsupported, "no attention kernel for {} in the {} order", to_string(dtype),
              to_string(order));
}

}  // namespace spyre::kernels
