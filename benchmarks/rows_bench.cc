// rows_bench [--runs R] [--only NAME]: attention and row kernels of every instruction set of this machine, one thread.
// Attention is compared with the asm peak meter (prefill) and with a stream read of a buffer of the KV's size (decode),
// measured in turn in the same process; the median of R runs is printed.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/vector_math.h"
#include "plugins/spyre/kernels/attention.h"
#include "plugins/spyre/kernels/kv_pages.h"
#include "plugins/spyre/kernels/peak.h"
#include "plugins/spyre/kernels/rows.h"

#include <sys/mman.h>

namespace {

using namespace spyre;
using namespace spyre::kernels;

int runs = 7;

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// CPU seconds of this thread: other jobs on the machine cost cache lines, but not time.
double thread_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// The meter uses the clock on the wall: its best of a few short runs is the peak even when other jobs run.
double peak_gflops(PeakKind kind) {
  double best = 0;
  for (int i = 0; i < 5; ++i) best = std::max(best, measure_peak_gflops(kind, 1, 0.004));
  return best;
}

double seconds_of(auto&& work) {
  const double start = thread_seconds();
  work();
  return thread_seconds() - start;
}

std::vector<uint16_t> random_words(DType dtype, int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<uint16_t> w(n);
  for (auto& x : w) x = store_16bit(dtype, normal(random));
  return w;
}

// KV of `tokens` tokens of one head, repeated for `heads` heads that stand for the heads of all layers.
class Kv {
 public:
  Kv(const AttentionKernels& k, int64_t tokens, int64_t heads, int64_t d)
      : layout(k.dtype, k.order, 64, 1, d), heads(heads), pages(tokens / 64) {
    words_ = static_cast<size_t>(layout.page_words() * pages * heads);
    void* memory = mmap(nullptr, words_ * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    madvise(memory, words_ * 2, MADV_HUGEPAGE);
    data_ = static_cast<uint16_t*>(memory);
    const auto key = random_words(k.dtype, tokens * d, 1), value = random_words(k.dtype, tokens * d, 2);
    for (int64_t t = 0; t < tokens; ++t) {
      layout.write(data_ + t / 64 * layout.page_words(), t % 64, 0, &key[t * d], &value[t * d]);
    }
    for (int64_t h = 1; h < heads; ++h) {
      std::memcpy(data_ + h * pages * layout.page_words(), data_, static_cast<size_t>(layout.page_bytes() * pages));
    }
    for (int64_t p = 0; p < pages * heads; ++p) groups.push_back(layout.group(data_ + p * layout.page_words(), 0, 0));
  }
  ~Kv() { munmap(data_, words_ * 2); }
  Kv(const Kv&) = delete;
  Kv& operator=(const Kv&) = delete;

  KvPageLayout layout;
  int64_t heads, pages;
  std::vector<KvGroup> groups;  // [head][page]
  size_t bytes() const { return words_ * 2; }

 private:
  uint16_t* data_ = nullptr;
  size_t words_ = 0;
};

// One pass of `rows` rows (positions x group heads) of every head over the whole context.
class Pass {
 public:
  Pass(const AttentionKernels& k, const Kv& kv, int64_t positions, int64_t group, bool causal)
      : k_(k), kv_(kv), d_(kv.layout.head_dim()), rows_(positions * group), q_(random_words(k.dtype, rows_ * d_, 3)) {
    const int64_t length = kv.pages * 64;
    for (int64_t i = 0; i < positions; ++i) visible_.push_back({0, causal ? length - positions + i + 1 : length});
    for (auto* state : {&total_, &part_}) {
      memory_.emplace_back(rows_ * (2 + attend_stride(d_)) + 64);
      float* p = memory_.back().data();
      *state = {p, p + rows_, p + 2 * rows_};
    }
    out_.resize(rows_ * d_);
    call_.q = {q_.data(), group, d_, group * d_};
    call_.rows = rows_;
    call_.head_dim = d_;
    call_.visible = visible_.data();
    call_.scale = 1.0f / std::sqrt(static_cast<float>(d_));
    call_.state = part_;
  }
  void operator()() {
    for (int64_t h = 0; h < kv_.heads; ++h) {
      attend_reset(total_, rows_, d_);
      for (int64_t g = 0; g < kv_.pages; g += kRangeGroups) {
        attend_reset(part_, rows_, d_);
        call_.groups = kv_.groups.data() + h * kv_.pages + g;
        call_.first_group = g;
        call_.group_count = std::min(kRangeGroups, kv_.pages - g);
        const int64_t next = h * kv_.pages + g + call_.group_count;
        call_.ahead = next < kv_.heads * kv_.pages ? kv_.groups[next] : KvGroup{};
        k_.attend(call_);
        k_.merge(total_, part_, rows_, d_);
      }
      k_.finish(total_, rows_, d_, {out_.data(), call_.q.group, d_, call_.q.group * d_});
    }
  }

 private:
  const AttentionKernels& k_;
  const Kv& kv_;
  int64_t d_, rows_;
  std::vector<uint16_t> q_, out_;
  std::vector<KeyInterval> visible_;
  std::vector<std::vector<float>> memory_;
  AttendState total_, part_;
  AttendCall call_;
};

PeakKind peak_of(const AttentionKernels& k) {
  if (k.level == CpuLevel::kPortable) return PeakKind::kMulAddXmm;
  if (k.level == CpuLevel::kAvx2) return PeakKind::kFmaYmm;
  return k.level == CpuLevel::kAvx512Bf16 && k.order == DotOrder::kPair ? PeakKind::kDotBf16 : PeakKind::kFmaZmm;
}

void prefill(const AttentionKernels& k, int64_t positions, int64_t group, int64_t tokens, bool causal) {
  const int64_t d = 64;
  const Kv kv(k, tokens, 1, d);
  Pass pass(k, kv, positions, group, causal);
  pass();
  const double keys =
      causal ? static_cast<double>(tokens) - static_cast<double>(positions - 1) / 2 : static_cast<double>(tokens);
  const double flop = 4.0 * static_cast<double>(positions * group * d) * keys;
  const int repeats = std::max(1, static_cast<int>(2e8 / flop));
  std::vector<double> rate, share;
  for (int i = 0; i < runs; ++i) {
    const double seconds = seconds_of([&] {
      for (int r = 0; r < repeats; ++r) pass();
    });
    rate.push_back(flop * repeats / seconds / 1e9);
    share.push_back(rate.back() / peak_gflops(peak_of(k)));
  }
  std::printf("%-34s %4ld x %ld rows, %5ld keys%s %9.1f GFLOP/s  %5.1f%% of peak\n", k.name, positions, group, tokens,
              causal ? " causal" : "       ", median(rate), 100 * median(share));
}

// KV of `heads` heads: many of them lie in memory, a few in the cache, where the kernel alone is measured.
void decode(const AttentionKernels& k, int64_t group, int64_t heads) {
  const Kv kv(k, 2048, heads, 64);
  Pass pass(k, kv, 1, group, true);
  const int repeats = std::max(1, static_cast<int>((size_t{64} << 20) / kv.bytes()));
  pass();
  const StreamReader stream(kv.bytes());
  std::vector<double> rate, share;
  for (int i = 0; i < runs; ++i) {
    const double seconds = seconds_of([&] {
      for (int r = 0; r < repeats; ++r) pass();
    });
    rate.push_back(static_cast<double>(kv.bytes()) * repeats / seconds / 1e9);
    share.push_back(rate.back() / stream.measure(1));
  }
  std::printf("%-34s decode, %ld heads per KV head, 2048 keys, %5.1f MB %6.1f GB/s  %5.1f%% of a stream read\n", k.name,
              group, static_cast<double>(kv.bytes()) / 1e6, median(rate), 100 * median(share));
}

void rows(const RowKernels& k) {
  const int64_t n = 4096;
  auto a = random_words(k.dtype, n, 1), b = random_words(k.dtype, n, 2), w = random_words(k.dtype, n, 3);
  std::vector<uint16_t> y(n);
  const auto report = [&](const char* what, auto&& work) {
    std::vector<double> rate;
    for (int i = 0; i < runs; ++i) {
      const int repeats = 500;
      const double seconds = seconds_of([&] {
        for (int r = 0; r < repeats; ++r) work();
      });
      rate.push_back(static_cast<double>(n) * repeats / seconds / 1e9);
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
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::string(argv[i]) == "--runs") runs = std::max(1, std::atoi(argv[i + 1]));
    if (std::string(argv[i]) == "--only") only = argv[i + 1];
  }
  ScopedFlushDenormals flush;
  const CpuFeatures features = CpuFeatures::detected();
  std::printf("%s, one thread, median of %d runs\n", to_string(features).c_str(), runs);
  for (const AttentionKernels& k : all_attention_kernels()) {
    if (!level_runs_on(k.level, features) || std::string(k.name).find(only) == std::string::npos) continue;
    prefill(k, 64, 1, 512, false);
    prefill(k, 64, 3, 512, true);
    prefill(k, 512, 3, 512, true);
    for (int64_t group : {1, 3, 8}) {
      decode(k, group, 1);
      decode(k, group, 200);
    }
  }
  for (const RowKernels& k : all_row_kernels()) {
    if (level_runs_on(k.level, features) && std::string(k.name).find(only) != std::string::npos) rows(k);
  }
  return 0;
}
