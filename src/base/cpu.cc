#include "base/cpu.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xmmintrin.h>
#endif

namespace spyre {
namespace {

constexpr std::array<std::string_view, 5> kLevelNames = {"portable", "avx2", "avx512", "avx512_bf16", "amx"};

#if defined(__x86_64__)

uint64_t read_xcr0() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

// Linux hands out the 8 KiB of tile data on request only (arch_prctl ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA = 18);
// threads started later inherit the permission.
bool request_tile_permission() {
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

CpuFeatures detect() {
  const auto bit = [](uint32_t word, int n) { return ((word >> n) & 1u) != 0; };
  CpuFeatures f;
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return f;
  const bool osxsave = bit(c, 27), avx = bit(c, 28), fma = bit(c, 12), f16c = bit(c, 29);
  if (!osxsave || !avx || !fma || !f16c) return f;
  const uint64_t xcr0 = read_xcr0();
  constexpr uint64_t kYmm = 0x6, kZmm = 0xe6, kTiles = 0x60000;
  uint32_t b7, c7, d7, subleaves;
  if (!__get_cpuid_count(7, 0, &subleaves, &b7, &c7, &d7)) return f;
  f.avx2 = (xcr0 & kYmm) == kYmm && bit(b7, 5);
  f.avx512 = f.avx2 && (xcr0 & kZmm) == kZmm && bit(b7, 16) && bit(b7, 17) && bit(b7, 30) && bit(b7, 31);
  if (subleaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) f.avx512_bf16 = f.avx512 && bit(a, 5);
  f.amx_bf16 = f.avx512 && (xcr0 & kTiles) == kTiles && bit(d7, 22) && bit(d7, 24) && request_tile_permission();
  return f;
}

#else

CpuFeatures detect() {
  return {};
}

#endif

bool read_line(const std::string& path, std::string& line) {
  std::ifstream in(path);
  return static_cast<bool>(std::getline(in, line));
}

// The quota stated in one cgroup folder, in CPUs; 0 when none is.
double quota_in(const std::string& folder, bool v2) {
  std::string line;
  double quota = 0, period = 0;
  if (v2) {
    if (!read_line(folder + "/cpu.max", line)) return 0;
    if (line.starts_with("max")) return 0;
    std::istringstream words(line);
    if (!(words >> quota >> period)) return 0;
  } else {
    std::string other;
    if (!read_line(folder + "/cpu.cfs_quota_us", line) || !read_line(folder + "/cpu.cfs_period_us", other)) return 0;
    std::istringstream first(line), second(other);
    if (!(first >> quota) || !(second >> period)) return 0;
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

// A container usually sees its own cgroup as the mount's root, while /proc names the path as the host sees it: folders
// that do not exist here are passed over and the walk ends at the mount.
double lowest_quota(const std::string& mount, std::string path, bool v2) {
  double lowest = 0;
  while (true) {
    const double quota = quota_in(mount + path, v2);
    if (quota > 0 && (lowest == 0 || quota < lowest)) lowest = quota;
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos || path.empty()) return lowest;
    path.resize(slash);
  }
}

int affinity_count() {
  for (int cpus = 1024; cpus <= (1 << 20); cpus *= 4) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(cpus));
    if (set == nullptr) return 1;
    const size_t size = CPU_ALLOC_SIZE(static_cast<size_t>(cpus));
    const int status = sched_getaffinity(0, size, set);
    const int error = errno;
    const int count = status == 0 ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (status == 0) return std::max(count, 1);
    if (error != EINVAL) return 1;  // EINVAL: the kernel knows more CPUs than the set holds
  }
  return 1;
}

}  // namespace

std::string_view to_string(CpuLevel level) {
  return kLevelNames[static_cast<size_t>(level)];
}

CpuLevel parse_cpu_level(std::string_view name) {
  for (size_t i = 0; i < kLevelNames.size(); ++i) {
    if (kLevelNames[i] == name) return static_cast<CpuLevel>(i);
  }
  throw_error(ErrorCode::kInvalidArgument, "CPU feature level '{}' is none of portable, avx2, avx512, avx512_bf16, amx",
              name);
}

CpuFeatures CpuFeatures::detected() {
  static const CpuFeatures features = detect();
  return features;
}

CpuFeatures CpuFeatures::of(CpuLevel level) {
  return CpuFeatures{.avx2 = true, .avx512 = true, .avx512_bf16 = true, .amx_bf16 = true}.capped(level);
}

CpuFeatures CpuFeatures::capped(CpuLevel level) const {
  CpuFeatures f = *this;
  f.avx2 &= level >= CpuLevel::kAvx2;
  f.avx512 &= f.avx2 && level >= CpuLevel::kAvx512;
  f.avx512_bf16 &= f.avx512 && level >= CpuLevel::kAvx512Bf16;
  f.amx_bf16 &= f.avx512 && level >= CpuLevel::kAmx;
  return f;
}

CpuFeatures CpuFeatures::capped_by_environment() {
  const char* name = std::getenv("SPYRE_CPU_FEATURES");
  if (name == nullptr || *name == '\0') return detected();
  try {
    return detected().capped(parse_cpu_level(name));
  } catch (const Error&) {
    throw_error(ErrorCode::kInvalidArgument,
                "SPYRE_CPU_FEATURES='{}': choose one of portable, avx2, avx512, avx512_bf16, amx", name);
  }
}

std::string to_string(const CpuFeatures& features) {
  std::string text;
  const auto add = [&](bool has, std::string_view name) {
    if (!has) return;
    if (!text.empty()) text += '+';
    text += name;
  };
  add(features.avx2, "avx2");
  add(features.avx512, "avx512");
  add(features.avx512_bf16, "avx512_bf16");
  add(features.amx_bf16, "amx");
  return text.empty() ? "portable" : text;
}

#if defined(__x86_64__)
ScopedFlushDenormals::ScopedFlushDenormals() : saved_(_mm_getcsr()) {
  constexpr uint32_t kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
  _mm_setcsr(saved_ | kFlushToZero | kDenormalsAreZero);
}
ScopedFlushDenormals::~ScopedFlushDenormals() {
  _mm_setcsr(saved_);
}
#else
ScopedFlushDenormals::ScopedFlushDenormals() = default;
ScopedFlushDenormals::~ScopedFlushDenormals() = default;
#endif

double cgroup_cpu_quota(const std::string& root) {
  std::ifstream in(root + "/proc/self/cgroup");
  double lowest = 0;
  const auto keep = [&](double quota) {
    if (quota > 0 && (lowest == 0 || quota < lowest)) lowest = quota;
  };
  std::string line;
  while (std::getline(in, line)) {  // "hierarchy:controllers:path"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (controllers.empty()) {
      keep(lowest_quota(root + "/sys/fs/cgroup", path, true));
      continue;
    }
    std::istringstream names(controllers);
    for (std::string name; std::getline(names, name, ',');) {
      if (name != "cpu") continue;
      keep(lowest_quota(root + "/sys/fs/cgroup/" + controllers, path, false));
      keep(lowest_quota(root + "/sys/fs/cgroup/cpu", path, false));
    }
  }
  return lowest;
}

int usable_cpus() {
  const int allowed = affinity_count();
  const double quota = cgroup_cpu_quota();
  if (quota <= 0 || quota >= allowed) return allowed;
  return std::max(1, static_cast<int>(quota));
}

}  // namespace spyre
