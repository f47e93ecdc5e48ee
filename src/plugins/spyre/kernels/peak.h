// What this machine can do at best, measured with inline assembly: the bar that kernels and whole models are compared
// with. (In C++ a compiler merges equal accumulators and shows peaks that do not exist.)
//
// Machines are noisy: take the median of five or more, and measure in the same process and minute as the figure it is
// compared with. Every function may be called from any thread; it starts `threads` threads of its own and joins them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/cpu.h"

namespace spyre::kernels {

enum class PeakKind : uint8_t {
  kMulAddXmm,  // SSE multiply and add: what portable kernels compile to on x86
  kFmaYmm,     // vfmadd231ps, 8 lanes
  kFmaZmm,     // vfmadd231ps, 16 lanes
  kDotBf16,    // vdpbf16ps, 16 lanes x 2 products
  kTileBf16,   // tdpbf16ps, 16 x 16 x 32 products
};

const char* to_string(PeakKind kind);
// What kernels of |level| are measured against.
PeakKind peak_of(CpuLevel level);
bool can_measure(PeakKind kind, const CpuFeatures& features);

// GFLOP/s (a multiply and an add are two) of `threads` threads together over about `seconds`; 0 when the machine has no
// such instruction.
double measure_peak_gflops(PeakKind kind, int threads, double seconds = 0.02);

// Memory read by streaming. Owns a touched buffer (huge pages where the kernel gives them) of `bytes`, the size of what
// the rate is compared with: a buffer that fits a cache measures the cache.
class StreamReader {
 public:
  explicit StreamReader(size_t bytes);  // throws kResourceExhausted
  ~StreamReader();
  StreamReader(const StreamReader&) = delete;
  StreamReader& operator=(const StreamReader&) = delete;

  // GB/s (1e9) of one pass, each thread reading one contiguous part.
  double measure(int threads) const;
  size_t bytes() const { return bytes_; }

 private:
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace spyre::kernels
