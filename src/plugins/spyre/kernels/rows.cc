#include "plugins/spyre/kernels/rows.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

#include "base/error.h"

namespace spyre::kernels {
namespace {

#if defined(__x86_64__)
constexpr const RowKernels* kSets[] = {kRowKernelsAvx512Bf16, kRowKernelsAvx512, kRowKernelsAvx2, kRowKernelsPortable};
#else
constexpr const RowKernels* kSets[] = {kRowKernelsPortable};
#endif

using Tables = std::array<RowKernels, 2 * std::size(kSets)>;

const Tables& tables() {
  static const Tables all = [] {
    Tables t{};
    for (size_t i = 0; i < std::size(kSets); ++i) std::copy_n(kSets[i], 2, &t[2 * i]);
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
  return {tables().data(), tables().data() + tables().size()};
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
