#include "plugins/spyre/kernels/rows.h"

#include <array>
#include <cstring>

#include "base/error.h"

namespace spyre::kernels {
namespace {

#if defined(__x86_64__)
constexpr int kTables = 8;
#else
constexpr int kTables = 2;
#endif

const std::array<RowKernels, kTables>& tables() {
  static const std::array<RowKernels, kTables> all = [] {
    std::array<RowKernels, kTables> t{};
    int i = 0;
    const auto add = [&](void (*fill)(RowKernels&, RowKernels&)) {
      fill(t[i], t[i + 1]);
      i += 2;
    };
#if defined(__x86_64__)
    add(row_kernels_avx512_bf16);
    add(row_kernels_avx512);
    add(row_kernels_avx2);
#endif
    add(row_kernels_portable);
    return t;
  }();
  return all;
}

}  // namespace

bool level_runs_on(CpuLevel level, const CpuFeatures& features) {
  switch (level) {
    case CpuLevel::kPortable:
      return true;
    case CpuLevel::kAvx2:
      return features.avx2;
    case CpuLevel::kAvx512:
      return features.avx512;
    case CpuLevel::kAvx512Bf16:
      return features.avx512_bf16;
    case CpuLevel::kAmx:
      return features.amx_bf16;
  }
  return false;
}

RowKernelList all_row_kernels() {
  return {tables().data(), tables().data() + kTables};
}

const RowKernels& select_row_kernels(const CpuFeatures& features, DType dtype) {
  for (const RowKernels& table : tables()) {
    if (table.dtype == dtype && level_runs_on(table.level, features)) return table;
  }
  throw_error(ErrorCode::kUnsupported, "row kernels compute in float16 or bfloat16, not {}", to_string(dtype));
}

void copy_row(const uint16_t* table, int64_t index, int64_t n, uint16_t* y) {
  std::memcpy(y, table + index * n, static_cast<size_t>(n) * sizeof(uint16_t));
}

}  // namespace spyre::kernels
