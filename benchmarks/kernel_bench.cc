// kernel_bench [--threads N] [--runs R] [--quick]: every GEMM kernel of this machine against its asm peak meter (A-B-A
// in one process, median of R runs) and one-row products against a stream read of the same size.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/cpu.h"
#include "base/half.h"
#include "plugins/spyre/kernels/kernel_table.h"
#include "plugins/spyre/kernels/panels.h"
#include "plugins/spyre/kernels/peak.h"

#include <sys/mman.h>

namespace {

using namespace spyre;
using namespace spyre::kernels;
using Clock = std::chrono::steady_clock;

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// Weights as the loader keeps them: anonymous memory in huge pages.
class Panels {
 public:
  explicit Panels(int64_t bytes) : bytes_(static_cast<size_t>(bytes) + (2u << 20)) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) std::abort();
    madvise(data_, bytes_, MADV_HUGEPAGE);
  }
  ~Panels() { munmap(data_, bytes_); }
  Panels(const Panels&) = delete;
  Panels& operator=(const Panels&) = delete;
  uint16_t* get() const { return static_cast<uint16_t*>(data_); }

 private:
  size_t bytes_;
  void* data_;
};

struct Problem {
  const GemmKernels* kernels;
  PanelLayout layout;
  int64_t rows;
  std::vector<uint16_t> a;
  Panels panels;
  std::vector<uint16_t> out;

  Problem(const GemmKernels& k, int64_t rows_, int64_t k_, int64_t n)
      : kernels(&k), layout{k.order, k_, n}, rows(rows_), panels(PanelLayout{k.order, k_, n}.bytes()) {
    std::mt19937 random(1);
    const auto value = [&] {
      const float x = static_cast<float>(static_cast<int>(random() % 2001) - 1000) * 1e-3f;
      return k.dtype == DType::kF16 ? f32_to_f16(x) : f32_to_bf16(x);
    };
    a.resize(static_cast<size_t>(rows * k_));
    for (auto& v : a) v = value();
    for (int64_t i = 0; i < layout.elements(); ++i) panels.get()[i] = value();
    out.resize(static_cast<size_t>(rows * n));
  }

  // Seconds per product, `threads` threads on equal ranges of columns.
  double seconds(int threads, double budget) {
    std::atomic<int> ready{0};
    std::atomic<bool> go{false};
    std::vector<double> per_call(static_cast<size_t>(threads));
    const int64_t vectors = layout.n / 16;
    const auto work = [&](int id) {
      ScopedFlushDenormals flush;
      const int64_t first = vectors * id / threads * 16, last = vectors * (id + 1) / threads * 16;
      const GemmCall call{.a = a.data(),
                          .lda = layout.k,
                          .rows = rows,
                          .panels = panels.get(),
                          .k = layout.k,
                          .first_column = first,
                          .columns = last - first,
                          .out = out.data(),
                          .ldo = layout.n,
                          .store = GemmStore::kRounded16};
      kernels->gemm(call);
      ready.fetch_add(1);
      while (!go.load()) std::this_thread::yield();
      const auto start = Clock::now();
      int64_t calls = 0;
      double elapsed = 0;
      do {
        kernels->gemm(call);
        ++calls;
        elapsed = std::chrono::duration<double>(Clock::now() - start).count();
      } while (elapsed < budget);
      per_call[static_cast<size_t>(id)] = elapsed / static_cast<double>(calls);
    };
    std::vector<std::thread> team;
    for (int id = 0; id < threads; ++id) team.emplace_back(work, id);
    while (ready.load() < threads) std::this_thread::yield();
    go = true;
    for (auto& t : team) t.join();
    return *std::max_element(per_call.begin(), per_call.end());
  }
};

void bench_compute(const GemmKernels& k, int64_t rows, int64_t kk, int64_t n, int threads, int runs) {
  Problem problem(k, rows, kk, n);
  const PeakKind kind = peak_of(k.level);
  std::vector<double> rates, shares;
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(kk) * static_cast<double>(n);
  for (int i = 0; i < runs; ++i) {
    const double before = measure_peak_gflops(kind, threads);
    const double rate = flops / problem.seconds(threads, 0.03) * 1e-9;
    const double after = measure_peak_gflops(kind, threads);
    rates.push_back(rate);
    shares.push_back(rate / ((before + after) / 2));
  }
  std::printf("%-24s %d thr  M=%-4ld K=%-5ld N=%-6ld %8.1f GFLOP/s  %5.1f%% of %s\n", k.name, threads, rows, kk, n,
              median(rates), 100 * median(shares), to_string(kind));
  std::fflush(stdout);
}

void bench_stream(const GemmKernels& k, int64_t rows, int64_t kk, int64_t n, int threads, int runs) {
  Problem problem(k, rows, kk, n);
  const double bytes = static_cast<double>(problem.layout.bytes());
  const StreamReader reader(static_cast<size_t>(bytes));
  std::vector<double> rates, shares;
  for (int i = 0; i < runs; ++i) {
    const double before = std::max(reader.measure(threads), reader.measure(threads));
    const double rate = bytes / problem.seconds(threads, 0.1) * 1e-9;
    const double after = std::max(reader.measure(threads), reader.measure(threads));
    rates.push_back(rate);
    shares.push_back(rate / ((before + after) / 2));
  }
  std::printf("%-24s %d thr  M=%-4ld K=%-5ld N=%-6ld %8.1f GB/s     %5.1f%% of a stream read of %.0f MB\n", k.name,
              threads, rows, kk, n, median(rates), 100 * median(shares), bytes * 1e-6);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  int threads = 0, runs = 5;
  bool quick = false;
  std::string only;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--threads" && i + 1 < argc) {
      threads = std::atoi(argv[++i]);
    } else if (arg == "--runs" && i + 1 < argc) {
      runs = std::max(1, std::atoi(argv[++i]));
    } else if (arg == "--only" && i + 1 < argc) {
      only = argv[++i];
    } else if (arg == "--quick") {
      quick = true;
    } else {
      std::fprintf(stderr, "usage: kernel_bench [--threads N] [--runs R] [--only KERNEL] [--quick]\n");
      return 2;
    }
  }
  const CpuFeatures features = CpuFeatures::detected();
  std::vector<int> team = threads > 0 ? std::vector<int>{threads} : std::vector<int>{1, usable_cpus()};
  if (threads <= 0 && team[1] == 1) team.pop_back();
  std::printf("machine: %s, %d usable CPUs\n", to_string(features).c_str(), usable_cpus());
  for (int t : team) {
    for (PeakKind kind :
         {PeakKind::kMulAddXmm, PeakKind::kFmaYmm, PeakKind::kFmaZmm, PeakKind::kDotBf16, PeakKind::kTileBf16}) {
      if (!can_measure(kind, features)) continue;
      std::vector<double> rates;
      for (int i = 0; i < runs; ++i) rates.push_back(measure_peak_gflops(kind, t));
      std::printf("peak %-18s %d thr %8.1f GFLOP/s\n", to_string(kind), t, median(rates));
    }
  }
  for (const GemmKernels& k : all_gemm_kernels()) {
    if (!runs_on(k, features) || (!only.empty() && only != k.name)) continue;
    for (int t : team) {
      for (int64_t rows : quick ? std::vector<int64_t>{64} : std::vector<int64_t>{1, 2, 4, 8, 16, 32, 64, 512}) {
        bench_compute(k, rows, 576, 3072, t, runs);
      }
      if (!quick) bench_compute(k, 64, 2048, 8192, t, runs);
      for (int64_t rows : quick ? std::vector<int64_t>{1} : std::vector<int64_t>{1, 4}) {
        bench_stream(k, rows, 576, 131072, t, runs);
      }
      if (!quick) bench_stream(k, 1, 2048, 65536, t, runs);
    }
  }
  return 0;
}
