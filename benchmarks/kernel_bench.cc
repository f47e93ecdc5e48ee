// kernel_bench [--threads N] [--runs R] [--quick]: every GEMM kernel of this machine against its asm peak meter (A-B-A
// in one process, median of R runs) and one-row products against a stream read of the same size.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "kernel_fixtures.h"

namespace {

using namespace spyre;
using namespace spyre::kernels;
void bench(const GemmKernels& k, int64_t rows, int64_t kk, int64_t n, const spyre::bench::Meter& meter, int threads,
           int runs) {
  spyre::bench::GemmWork work(k, rows, kk, n);
  const spyre::bench::Figure figure = spyre::bench::measure(work, meter, threads, runs, meter.reads() ? 0.1 : 0.03);
  std::printf("%-24s %d thr  M=%-4ld K=%-5ld N=%-6ld %8.1f %s  %5.1f%% of %s\n", k.name, threads, rows, kk, n,
              figure.rate, meter.reads() ? "GB/s   " : "GFLOP/s", 100 * figure.share,
              meter.reads() ? "a stream read of its bytes" : to_string(spyre::bench::peak_of(k)));
  std::fflush(stdout);
}

void bench_compute(const GemmKernels& k, int64_t rows, int64_t kk, int64_t n, int threads, int runs) {
  bench(k, rows, kk, n, spyre::bench::Meter(spyre::bench::peak_of(k)), threads, runs);
}

void bench_stream(const GemmKernels& k, int64_t rows, int64_t kk, int64_t n, int threads, int runs) {
  const spyre::bench::Meter meter(static_cast<size_t>(PanelLayout{k.order, kk, n}.bytes()));
  bench(k, rows, kk, n, meter, threads, runs);
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
      std::printf("peak %-18s %d thr %8.1f GFLOP/s\n", to_string(kind), t, spyre::bench::median(rates));
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
