#include "plugins/spyre/kernels/peak.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "base/error.h"

namespace spyre::kernels {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Runs body(thread) on `threads` new threads that start together; gives the time from that start to the last end. New
// ones, so that what a meter does to vector and tile state is nobody else's business.
double run_together(int threads, const std::function<void(int)>& body) {
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<double> ends(static_cast<size_t>(threads));
  Clock::time_point start;
  const auto work = [&](int id) {
    ready.fetch_add(1);
    while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
    body(id);
    ends[static_cast<size_t>(id)] = seconds_since(start);
  };
  std::vector<std::thread> team;
  for (int id = 0; id < threads; ++id) team.emplace_back(work, id);
  while (ready.load() < threads) std::this_thread::yield();
  start = Clock::now();
  go.store(true, std::memory_order_release);
  for (auto& t : team) t.join();
  return *std::max_element(ends.begin(), ends.end());
}

#if defined(__x86_64__)

// Twelve accumulators cover latency 4-6 x 2 instructions per cycle. Every register is zero: no denormals, no NaN.
#define SPYRE_TWELVE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define SPYRE_CLOBBER_XMM                                                                                             \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", \
      "xmm14", "xmm15"
#define SPYRE_LOOP(BODY, END) \
  __asm__ volatile("1:\n" BODY BODY "sub $1, %0\njnz 1b\n" END : "+r"(loops) : : "cc", "memory", SPYRE_CLOBBER_XMM)

// 12 instructions per body, two bodies per loop.
constexpr double kPerLoop = 24;

void loop_mul_add_xmm(int64_t loops) {
#define X(n) "xorps %%xmm" #n ", %%xmm" #n "\n"
  __asm__ volatile(SPYRE_TWELVE(X) : : : SPYRE_CLOBBER_XMM);
#undef X
  // Six multiplies and six adds: 12 instructions are 6 multiply-adds.
  SPYRE_LOOP(
      "mulps %%xmm0, %%xmm0\naddps %%xmm1, %%xmm1\nmulps %%xmm2, %%xmm2\naddps %%xmm3, %%xmm3\n"
      "mulps %%xmm4, %%xmm4\naddps %%xmm5, %%xmm5\nmulps %%xmm6, %%xmm6\naddps %%xmm7, %%xmm7\n"
      "mulps %%xmm8, %%xmm8\naddps %%xmm9, %%xmm9\nmulps %%xmm10, %%xmm10\naddps %%xmm11, %%xmm11\n",
      "");
}

void loop_fma_ymm(int64_t loops) {
#define X(n) "vxorps %%ymm" #n ", %%ymm" #n ", %%ymm" #n "\n"
  __asm__ volatile(SPYRE_TWELVE(X) "vxorps %%ymm12, %%ymm12, %%ymm12\n" : : : SPYRE_CLOBBER_XMM);
#undef X
#define X(n) "vfmadd231ps %%ymm12, %%ymm12, %%ymm" #n "\n"
  SPYRE_LOOP(SPYRE_TWELVE(X), "vzeroupper\n");
#undef X
}

void loop_fma_zmm(int64_t loops) {
#define X(n) "vpxord %%zmm" #n ", %%zmm" #n ", %%zmm" #n "\n"
  __asm__ volatile(SPYRE_TWELVE(X) "vpxord %%zmm12, %%zmm12, %%zmm12\n" : : : SPYRE_CLOBBER_XMM);
#undef X
#define X(n) "vfmadd231ps %%zmm12, %%zmm12, %%zmm" #n "\n"
  SPYRE_LOOP(SPYRE_TWELVE(X), "vzeroupper\n");
#undef X
}

void loop_dot_bf16(int64_t loops) {
#define X(n) "vpxord %%zmm" #n ", %%zmm" #n ", %%zmm" #n "\n"
  __asm__ volatile(SPYRE_TWELVE(X) "vpxord %%zmm12, %%zmm12, %%zmm12\n" : : : SPYRE_CLOBBER_XMM);
#undef X
#define X(n) "vdpbf16ps %%zmm12, %%zmm12, %%zmm" #n "\n"
  SPYRE_LOOP(SPYRE_TWELVE(X), "vzeroupper\n");
#undef X
}

struct alignas(64) TileConfig {
  uint8_t palette, start_row;
  uint8_t reserved[14];
  uint16_t columns[16];  // bytes
  uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == 64);

void loop_tile_bf16(int64_t loops) {
  TileConfig config = {};
  config.palette = 1;
  for (int t = 0; t < 8; ++t) {
    config.columns[t] = 64;
    config.rows[t] = 16;
  }
  __asm__ volatile("ldtilecfg %0" : : "m"(config));  // all 64 bytes are the operand: none of the stores may vanish
  __asm__ volatile(
      "tilezero %%tmm0\ntilezero %%tmm1\ntilezero %%tmm2\ntilezero %%tmm3\n"
      "tilezero %%tmm4\ntilezero %%tmm5\ntilezero %%tmm6\ntilezero %%tmm7\n"
      "1:\n"
      "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\ntdpbf16ps %%tmm7, %%tmm4, %%tmm1\n"
      "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\ntdpbf16ps %%tmm7, %%tmm5, %%tmm3\n"
      "sub $1, %0\njnz 1b\ntilerelease\n"
      : "+r"(loops)
      :
      : "cc", "memory");
}

struct PeakLoop {
  void (*run)(int64_t loops);
  double flops_per_loop;
};

PeakLoop loop_of(PeakKind kind) {
  switch (kind) {
    case PeakKind::kMulAddXmm:
      return {loop_mul_add_xmm, kPerLoop * 4};
    case PeakKind::kFmaYmm:
      return {loop_fma_ymm, kPerLoop * 16};
    case PeakKind::kFmaZmm:
      return {loop_fma_zmm, kPerLoop * 32};
    case PeakKind::kDotBf16:
      return {loop_dot_bf16, kPerLoop * 64};
    case PeakKind::kTileBf16:
      return {loop_tile_bf16, 4.0 * 2 * 16 * 16 * 32};
  }
  return {};
}

// REQUIRES: lines > 0. One pass over `lines` blocks of 512 bytes.
void read_zmm(const char* p, int64_t blocks) {
  __asm__ volatile(
      "1:\n"
      "vmovups (%0), %%zmm0\nvmovups 64(%0), %%zmm1\nvmovups 128(%0), %%zmm2\nvmovups 192(%0), %%zmm3\n"
      "vmovups 256(%0), %%zmm4\nvmovups 320(%0), %%zmm5\nvmovups 384(%0), %%zmm6\nvmovups 448(%0), %%zmm7\n"
      "add $512, %0\nsub $1, %1\njnz 1b\nvzeroupper\n"
      : "+r"(p), "+r"(blocks)
      :
      : "cc", "memory", SPYRE_CLOBBER_XMM);
}

void read_xmm(const char* p, int64_t blocks) {
  __asm__ volatile(
      "1:\n"
      "movups (%0), %%xmm0\nmovups 16(%0), %%xmm1\nmovups 32(%0), %%xmm2\nmovups 48(%0), %%xmm3\n"
      "movups 64(%0), %%xmm4\nmovups 80(%0), %%xmm5\nmovups 96(%0), %%xmm6\nmovups 112(%0), %%xmm7\n"
      "movups 128(%0), %%xmm0\nmovups 144(%0), %%xmm1\nmovups 160(%0), %%xmm2\nmovups 176(%0), %%xmm3\n"
      "movups 192(%0), %%xmm4\nmovups 208(%0), %%xmm5\nmovups 224(%0), %%xmm6\nmovups 240(%0), %%xmm7\n"
      "movups 256(%0), %%xmm0\nmovups 272(%0), %%xmm1\nmovups 288(%0), %%xmm2\nmovups 304(%0), %%xmm3\n"
      "movups 320(%0), %%xmm4\nmovups 336(%0), %%xmm5\nmovups 352(%0), %%xmm6\nmovups 368(%0), %%xmm7\n"
      "movups 384(%0), %%xmm0\nmovups 400(%0), %%xmm1\nmovups 416(%0), %%xmm2\nmovups 432(%0), %%xmm3\n"
      "movups 448(%0), %%xmm4\nmovups 464(%0), %%xmm5\nmovups 480(%0), %%xmm6\nmovups 496(%0), %%xmm7\n"
      "add $512, %0\nsub $1, %1\njnz 1b\n"
      : "+r"(p), "+r"(blocks)
      :
      : "cc", "memory", SPYRE_CLOBBER_XMM);
}

void read_blocks(const char* p, int64_t blocks) {
  if (blocks <= 0) return;
  CpuFeatures::detected().avx512 ? read_zmm(p, blocks) : read_xmm(p, blocks);
}

#else

struct PeakLoop {
  void (*run)(int64_t loops);
  double flops_per_loop;
};
PeakLoop loop_of(PeakKind) {
  return {};
}

void read_blocks(const char* p, int64_t blocks) {
  uint64_t sum = 0;
  for (const char* end = p + blocks * 512; p < end; p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    sum += word;
  }
  __asm__ volatile("" : : "r"(sum));
}

#endif

}  // namespace

const char* to_string(PeakKind kind) {
  switch (kind) {
    case PeakKind::kMulAddXmm:
      return "mulps+addps xmm";
    case PeakKind::kFmaYmm:
      return "vfmadd231ps ymm";
    case PeakKind::kFmaZmm:
      return "vfmadd231ps zmm";
    case PeakKind::kDotBf16:
      return "vdpbf16ps zmm";
    case PeakKind::kTileBf16:
      return "tdpbf16ps";
  }
  return "?";
}

PeakKind peak_of(CpuLevel level) {
  switch (level) {
    case CpuLevel::kPortable:
      return PeakKind::kMulAddXmm;
    case CpuLevel::kAvx2:
      return PeakKind::kFmaYmm;
    case CpuLevel::kAvx512:
      return PeakKind::kFmaZmm;
    case CpuLevel::kAvx512Bf16:
      return PeakKind::kDotBf16;
    case CpuLevel::kAmx:
      return PeakKind::kTileBf16;
  }
  return PeakKind::kMulAddXmm;
}

bool can_measure(PeakKind kind, const CpuFeatures& features) {
#if defined(__x86_64__)
  switch (kind) {
    case PeakKind::kMulAddXmm:
      return true;
    case PeakKind::kFmaYmm:
      return features.avx2;
    case PeakKind::kFmaZmm:
      return features.avx512;
    case PeakKind::kDotBf16:
      return features.avx512_bf16;
    case PeakKind::kTileBf16:
      return features.amx_bf16;
  }
#else
  (void)kind, (void)features;
#endif
  return false;
}

double measure_peak_gflops(PeakKind kind, int threads, double seconds) {
  if (!can_measure(kind, CpuFeatures::detected()) || threads < 1) return 0;
  const PeakLoop loop = loop_of(kind);
  constexpr int64_t kChunk = 20000;  // loops between two looks at the clock: some 50 us
  std::vector<double> rates(static_cast<size_t>(threads));
  run_together(threads, [&](int id) {
    loop.run(kChunk);  // wakes the wide units up
    const auto start = Clock::now();
    int64_t done = 0;
    double elapsed = 0;
    while (elapsed < seconds) {
      loop.run(kChunk);
      done += kChunk;
      elapsed = seconds_since(start);
    }
    rates[static_cast<size_t>(id)] = static_cast<double>(done) * loop.flops_per_loop / elapsed;
  });
  double sum = 0;
  for (double rate : rates) sum += rate;
  return sum * 1e-9;
}

StreamReader::StreamReader(size_t bytes) : bytes_((bytes + 511) / 512 * 512) {
  constexpr size_t kHuge = size_t{2} << 20;
  bytes_ = std::max(bytes_, size_t{512});
  void* map = mmap(nullptr, bytes_ + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) {
    throw_error(ErrorCode::kResourceExhausted, "cannot map {} bytes to measure the memory: {}", bytes_,
                std::strerror(errno));
  }
  data_ = static_cast<char*>(map);
  madvise(data_, bytes_ + kHuge, MADV_HUGEPAGE);
  std::memset(data_, 1, bytes_);  // a page never written is one shared zero page, which stays in the cache
}

StreamReader::~StreamReader() {
  munmap(data_, bytes_ + (size_t{2} << 20));
}

double StreamReader::measure(int threads) const {
  const int64_t blocks = static_cast<int64_t>(bytes_ / 512);
  const double elapsed = run_together(threads, [&](int id) {
    const int64_t first = blocks * id / threads, last = blocks * (id + 1) / threads;
    read_blocks(data_ + first * 512, last - first);
  });
  return static_cast<double>(bytes_) / elapsed * 1e-9;
}

}  // namespace spyre::kernels
