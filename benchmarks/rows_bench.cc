// rows_bench [--runs R] [--threads N] [--only NAME] [--quick]: attention and row kernels of every instruction set of
// this machine. Attention is compared with the asm peak meter (prefill) and with a stream read of a buffer of the KV's
// size (decode), A-B-A in one process; the median of R runs is printed.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "kernel_fixtures.h"

namespace {

using namespace spyre;
using namespace spyre::kernels;
using bench::median;
using bench::random_words;

int runs = 5;

// CPU seconds of this thread: other jobs on the machine cost cache lines, but not time.
double thread_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void attention(const AttentionKernels& k, const bench::AttentionShape& shape, const char* what,
               const bench::Meter& meter, int threads) {
  bench::AttentionWork work(k, shape);
  const bench::Figure figure = bench::measure(work, meter, threads, runs);
  std::printf("%-34s %d thr %s d=%-3ld group %ld, %5ld x %-5ld %7.1f %s  %5.1f%% of %s\n", k.name, threads, what,
              shape.head_dim, shape.group, shape.positions, shape.keys, figure.rate,
              meter.reads() ? "GB/s   " : "GFLOP/s", 100 * figure.share, meter.reads() ? "a stream read" : "peak");
  std::fflush(stdout);
}

// Prompts from a cache of one head; and decoding, the KV of many heads in memory and that of one in the cache.
void attention(const AttentionKernels& k, int threads, bool quick) {
  const bench::Meter peak(bench::peak_of(k));
  for (const auto& [d, group] : {std::pair<int64_t, int64_t>{64, 3}, {128, 4}}) {
    for (int64_t length : quick ? std::vector<int64_t>{512} : std::vector<int64_t>{512, 2048}) {
      attention(k, {.head_dim = d, .group = group, .keys = length, .positions = length}, "prefill", peak, threads);
    }
    bench::AttentionShape decode{.head_dim = d, .group = group, .heads = 200 * 64 / d};
    const bench::Meter stream(static_cast<size_t>(decode.heads * decode.keys * d * 4));
    attention(k, decode, "decode ", stream, threads);
    if (quick) continue;
    decode.heads = threads;
    attention(k, decode, "cached ", peak, threads);
  }
}

void rows(const RowKernels& k) {
  const int64_t n = 4096;
  auto a = random_words(k.dtype, n, 1), b = random_words(k.dtype, n, 2), w = random_words(k.dtype, n, 3);
  std::vector<uint16_t> y(n);
  const auto report = [&](const char* what, auto&& work) {
    std::vector<double> rate;
    for (int i = 0; i < runs; ++i) {
      const int repeats = 500;
      const double start = thread_seconds();
      for (int r = 0; r < repeats; ++r) work();
      rate.push_back(static_cast<double>(n) * repeats / (thread_seconds() - start) / 1e9);
    }
    std::printf("  %s %.2f", what, median(rate));
  };
  std::printf("%-18s G elements/s:", k.name);
  report("add", [&] { k.binary(BinaryOp::kAdd, a.data(), b.data(), y.data(), n); });
  report("silu_mul", [&] { k.activate_mul(UnaryOp::kSilu, a.data(), b.data(), y.data(), n); });
  report("gelu", [&] { k.unary(UnaryOp::kGelu, a.data(), y.data(), n); });
  report("rms_norm", [&] { k.rms_norm(a.data(), w.data(), 1e-5f, y.data(), n); });
  std::vector<float> stream(n, 1.0f);
  report("add_rms_norm_wide",
         [&] { k.add_rms_norm_wide(a.data(), stream.data(), w.data(), 1e-5f, stream.data(), y.data(), n); });
  report("softmax", [&] { k.softmax(a.data(), y.data(), n); });
  report("all_finite", [&] { y[0] = k.all_finite(a.data(), n); });
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  std::string only;
  int threads = 1;
  bool quick = false;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--runs" && i + 1 < argc) {
      runs = std::max(1, std::atoi(argv[++i]));
    } else if (arg == "--threads" && i + 1 < argc) {
      threads = std::max(1, std::atoi(argv[++i]));
    } else if (arg == "--only" && i + 1 < argc) {
      only = argv[++i];
    } else if (arg == "--quick") {
      quick = true;
    } else {
      std::fprintf(stderr, "usage: rows_bench [--threads N] [--runs R] [--only NAME] [--quick]\n");
      return 2;
    }
  }
  ScopedFlushDenormals flush;
  const CpuFeatures features = CpuFeatures::detected();
  std::printf("%s, median of %d runs\n", to_string(features).c_str(), runs);
  for (const AttentionKernels& k : all_attention_kernels()) {
    if (level_runs_on(k.level, features) && std::string(k.name).find(only) != std::string::npos) {
      attention(k, threads, quick);
    }
  }
  for (const RowKernels& k : all_row_kernels()) {
    if (level_runs_on(k.level, features) && std::string(k.name).find(only) != std::string::npos) rows(k);
  }
  return 0;
}
