// What this machine's processor can do, and how many of it we may use.
//
// CpuFeatures is a plain value. Every choice of a kernel takes it as an argument, so that a test pins the choice for
// any CPU on any CPU. Two values matter in a process: `detected()`, the machine as it is (orders of summation follow
// this one, so that capping never changes bits), and `capped_by_environment()`, the machine as SPYRE_CPU_FEATURES lets
// us see it (kernels follow that one).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/export.h"

namespace spyre {

// Levels form a ladder: each includes those before it.
enum class CpuLevel : uint8_t {
  kPortable,    // the baseline the program is compiled for
  kAvx2,        // AVX2, FMA, F16C
  kAvx512,      // AVX-512 F, BW, DQ, VL
  kAvx512Bf16,  // AVX512_BF16 (vdpbf16ps)
  kAmx,         // AMX-TILE, AMX-BF16
};

SPYRE_API std::string_view to_string(CpuLevel level);       // "portable", "avx2", "avx512", "avx512_bf16", "amx"
SPYRE_API CpuLevel parse_cpu_level(std::string_view name);  // throws kInvalidArgument naming the choices

// REQUIRES: avx512 implies avx2, avx512_bf16 implies avx512 (detected() and capped() keep it). amx_bf16 means that the
// CPU has the tiles *and* the kernel lets this process use them.
struct CpuFeatures {
  bool avx2 = false;
  bool avx512 = false;
  bool avx512_bf16 = false;
  bool amx_bf16 = false;

  // The machine (cpuid, the register state the OS saves, the permission for tile data asked for once per process).
  SPYRE_API static CpuFeatures detected();
  // All that a level includes: CpuFeatures::of(CpuLevel::kAvx512) is a machine for tests.
  SPYRE_API static CpuFeatures of(CpuLevel level);
  // This machine without what lies above `level`.
  SPYRE_API CpuFeatures capped(CpuLevel level) const;
  // detected().capped(SPYRE_CPU_FEATURES); throws kInvalidArgument when the variable holds another word.
  SPYRE_API static CpuFeatures capped_by_environment();

  bool operator==(const CpuFeatures&) const = default;
};

SPYRE_API std::string to_string(const CpuFeatures& features);  // "avx2+avx512+avx512_bf16", or "portable"

// Flush-to-zero and denormals-are-zero for the calling thread while the object lives (docs/numerics.md §1). Every
// thread that computes holds one. Without MXCSR (not x86) it does nothing: the promise of equal bits ends at subnormals
// there.
class SPYRE_API ScopedFlushDenormals {
 public:
  ScopedFlushDenormals();
  ~ScopedFlushDenormals();
  ScopedFlushDenormals(const ScopedFlushDenormals&) = delete;
  ScopedFlushDenormals& operator=(const ScopedFlushDenormals&) = delete;

 private:
  uint32_t saved_ = 0;
};

// CPUs this process may keep busy: its affinity mask, cut to the CPU quota of its cgroup (v1 or v2, every ancestor
// counts), at least 1. A quota of 2.5 CPUs gives 2: a third spinning thread would get all of them throttled.
SPYRE_API int usable_cpus();

// The quota alone, in CPUs, or 0 when there is none. `root` stands before /proc and /sys (tests pass a folder).
SPYRE_API double cgroup_cpu_quota(const std::string& root = "");

}  // namespace spyre
