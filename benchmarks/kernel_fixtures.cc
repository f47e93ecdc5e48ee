#include "kernel_fixtures.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "base/cpu.h"
#include "base/vector_math.h"

namespace spyre::bench {

using namespace kernels;
using Clock = std::chrono::steady_clock;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Memory::Memory(int64_t bytes) : bytes_(static_cast<size_t>(bytes) + (size_t{2} << 20)) {
  data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data_ == MAP_FAILED) std::abort();
  madvise(data_, bytes_, MADV_HUGEPAGE);
}

Memory::~Memory() {
  munmap(data_, bytes_);
}

std::vector<uint16_t> random_words(DType dtype, int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<uint16_t> words(static_cast<size_t>(n));
  for (auto& w : words) w = store_16bit(dtype, normal(random));
  return words;
}

double Work::seconds(int threads, double budget) {
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<double> per_run(static_cast<size_t>(threads));
  const auto body = [&](int id) {
    ScopedFlushDenormals flush;
    run(id, threads);
    ready.fetch_add(1);
    while (!go.load()) std::this_thread::yield();
    const auto start = Clock::now();
    int64_t runs = 0;
    double elapsed = 0;
    do {
      run(id, threads);
      ++runs;
      elapsed = std::chrono::duration<double>(Clock::now() - start).count();
    } while (elapsed < budget);
    per_run[static_cast<size_t>(id)] = elapsed / static_cast<double>(runs);
  };
  std::vector<std::thread> team;
  for (int id = 0; id < threads; ++id) team.emplace_back(body, id);
  while (ready.load() < threads) std::this_thread::yield();
  go = true;
  for (auto& t : team) t.join();
  return *std::max_element(per_run.begin(), per_run.end());
}

// ---------------------------------------------------------------- products

GemmWork::GemmWork(const GemmKernels& kernels, int64_t rows, int64_t k, int64_t n)
    : kernels_(kernels),
      layout_{kernels.order, k, n},
      rows_(rows),
      a_(random_words(kernels.dtype, rows * k, 1)),
      out_(static_cast<size_t>(rows * n)),
      panels_(layout_.bytes()) {
  // A few thousand numbers, over and over: large weights are made in no time.
  const std::vector<uint16_t> some = random_words(kernels.dtype, 8191, 2);
  for (int64_t i = 0; i < layout_.elements(); i += std::ssize(some)) {
    const int64_t count = std::min(std::ssize(some), layout_.elements() - i);
    std::memcpy(panels_.words() + i, some.data(), static_cast<size_t>(count) * 2);
  }
}

double GemmWork::flops() const {
  return 2.0 * static_cast<double>(rows_) * static_cast<double>(layout_.k) * static_cast<double>(layout_.n);
}

void GemmWork::run(int thread, int threads) {
  const int64_t vectors = layout_.n / 16;
  const int64_t first = vectors * thread / threads * 16, last = vectors * (thread + 1) / threads * 16;
  kernels_.gemm({.a = a_.data(),
                 .lda = layout_.k,
                 .rows = rows_,
                 .panels = panels_.words(),
                 .k = layout_.k,
                 .first_column = first,
                 .columns = last - first,
                 .out = out_.data(),
                 .ldo = layout_.n,
                 .store = GemmStore::kRounded16});
}

// ---------------------------------------------------------------- attention

AttentionWork::AttentionWork(const AttentionKernels& kernels, const AttentionShape& shape)
    : kernels_(kernels),
      shape_(shape),
      layout_(kernels.dtype, kernels.order, shape.block_size, 1, shape.head_dim),
      pages_((shape.keys + shape.block_size - 1) / shape.block_size),
      kv_(layout_.page_bytes() * pages_ * shape.heads),
      q_(random_words(kernels.dtype, shape.positions * shape.group * shape.head_dim, 3)),
      out_(q_.size() * static_cast<size_t>(shape.heads)) {
  const int64_t d = shape.head_dim;
  const auto k = random_words(kernels.dtype, shape.keys * d, 1), v = random_words(kernels.dtype, shape.keys * d, 2);
  for (int64_t t = 0; t < shape.keys; ++t) {
    uint16_t* page = kv_.words() + t / shape.block_size * layout_.page_words();
    layout_.write(page, t % shape.block_size, 0, &k[static_cast<size_t>(t * d)], &v[static_cast<size_t>(t * d)]);
  }
  for (int64_t h = 0; h < shape.heads; ++h) {
    uint16_t* head = kv_.words() + h * pages_ * layout_.page_words();
    if (h > 0) std::memcpy(head, kv_.words(), static_cast<size_t>(pages_ * layout_.page_bytes()));
    for (int64_t p = 0; p < pages_; ++p) {
      for (int64_t g = 0; g < layout_.groups(); ++g) {
        groups_.push_back(layout_.group(head + p * layout_.page_words(), 0, g));
      }
    }
  }
}

double AttentionWork::flops() const {
  const double keys = static_cast<double>(shape_.keys) - static_cast<double>(shape_.positions - 1) / 2;
  return 4.0 * static_cast<double>(shape_.positions * shape_.group * shape_.head_dim * shape_.heads) * keys;
}

double AttentionWork::bytes() const {
  return 4.0 * static_cast<double>(shape_.keys * shape_.head_dim * shape_.heads);
}

void AttentionWork::run(int thread, int threads) {
  const int64_t rows = std::max<int64_t>(60, shape_.group), stride = attend_stride(shape_.head_dim);
  thread_local std::vector<float> scratch;
  scratch.resize(static_cast<size_t>(2 * rows * (2 + stride) + 64));
  if (shape_.heads == 1 && shape_.positions > 1) {
    // Positions see ever more keys: equal shares of the pairs end at the roots of equal parts of the square.
    const auto end = [&](int t) {
      return static_cast<int64_t>(static_cast<double>(shape_.positions) * std::sqrt(static_cast<double>(t) / threads));
    };
    return run_head(0, end(thread), end(thread + 1), scratch.data());
  }
  for (int64_t h = shape_.heads * thread / threads; h < shape_.heads * (thread + 1) / threads; ++h) {
    run_head(h, 0, shape_.positions, scratch.data());
  }
}

void AttentionWork::run_head(int64_t head, int64_t first, int64_t last, float* scratch) {
  const int64_t tiles = std::max<int64_t>(1, 60 / shape_.group);
  const int64_t per_call = shape_.group * tiles % 6 == 0 || tiles < 6 ? tiles : tiles / 6 * 6;
  for (; first < last; first += per_call) run_call(head, first, std::min(per_call, last - first), scratch);
}

void AttentionWork::run_call(int64_t head, int64_t first, int64_t positions, float* scratch) {
  const int64_t rows = positions * shape_.group, d = shape_.head_dim, stride = attend_stride(d);
  const AttendState total{scratch, scratch + rows, scratch + 2 * rows};
  scratch += (rows * (2 + stride) + 15) / 16 * 16;
  const AttendState part{scratch, scratch + rows, scratch + 2 * rows};
  KeyInterval visible[60];
  const int64_t before = shape_.keys - shape_.positions + first;
  for (int64_t i = 0; i < positions; ++i) visible[i] = {0, before + i + 1};
  const int64_t offset = first * shape_.group * d;
  AttendCall call{.q = {q_.data() + offset, shape_.group, d, shape_.group * d},
                  .rows = rows,
                  .head_dim = d,
                  .visible = visible,
                  .scale = 1.0f / std::sqrt(static_cast<float>(d))};
  const int64_t groups = (before + positions + kGroupTokens - 1) / kGroupTokens;
  const KvGroup* kv = groups_.data() + head * pages_ * layout_.groups();
  for (int64_t g = 0; g < groups; g += kRangeGroups) {
    call.state = g == 0 ? total : part;
    attend_reset(call.state, rows, d);
    call.groups = kv + g;
    call.first_group = g;
    call.group_count = std::min(kRangeGroups, groups - g);
    // What is read next: this head's, or the next one's.
    const bool more = kv + g + call.group_count < groups_.data() + groups_.size();
    call.ahead = more ? kv[g + call.group_count] : KvGroup{};
    kernels_.attend(call);
    if (g > 0) kernels_.merge(total, part, rows, d);
  }
  uint16_t* out = out_.data() + head * std::ssize(q_) + offset;
  kernels_.finish(total, rows, d, {out, shape_.group, d, shape_.group * d});
}

// ---------------------------------------------------------------- meters

double Meter::measure(int threads) const {
  if (stream_) return std::max(stream_->measure(threads), stream_->measure(threads));
  return measure_peak_gflops(peak_, threads);
}

Figure measure(Work& work, const Meter& meter, int threads, int rounds, double budget) {
  std::vector<double> rates, shares;
  const double amount = meter.reads() ? work.bytes() : work.flops();
  for (int i = 0; i < rounds; ++i) {
    const double before = meter.measure(threads);
    const double rate = amount / work.seconds(threads, budget) * 1e-9;
    const double after = meter.measure(threads);
    rates.push_back(rate);
    shares.push_back(rate / ((before + after) / 2));
  }
  return {median(rates), median(shares)};
}

PeakKind peak_of(const AttentionKernels& k) {
  if (k.level == CpuLevel::kPortable) return PeakKind::kMulAddXmm;
  if (k.level == CpuLevel::kAvx2) return PeakKind::kFmaYmm;
  return k.level == CpuLevel::kAvx512Bf16 && k.order == DotOrder::kPair ? PeakKind::kDotBf16 : PeakKind::kFmaZmm;
}

PeakKind peak_of(const GemmKernels& k) {
  return kernels::peak_of(k.level);
}

}  // namespace spyre::bench
