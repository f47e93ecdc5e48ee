// What the kernel benchmarks share: operands as the program keeps them, threads that start together, and the meters of
// the machine that a kernel is compared with.
//
// A figure is a ratio: the meter, the kernel, the meter again in one process and within a tenth of a second (A-B-A),
// the median of several such rounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "plugins/spyre/kernels/attention.h"
#include "plugins/spyre/kernels/kernel_table.h"
#include "plugins/spyre/kernels/kv_pages.h"
#include "plugins/spyre/kernels/panels.h"
#include "plugins/spyre/kernels/peak.h"
#include "plugins/spyre/kernels/rows.h"

namespace spyre::bench {

double median(std::vector<double> values);

// Anonymous memory in huge pages, as weights and KV pages lie in.
class Memory {
 public:
  explicit Memory(int64_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  uint16_t* words() const { return static_cast<uint16_t*>(data_); }

 private:
  size_t bytes_;
  void* data_;
};

// Normally distributed, one standard deviation each side of 0.
std::vector<uint16_t> random_words(DType dtype, int64_t n, uint32_t seed);

// A piece of work that a team divides: run(thread, threads) does one thread's part, any number of times.
class Work {
 public:
  virtual ~Work() = default;
  virtual void run(int thread, int threads) = 0;
  virtual double flops() const { return 0; }  // of one run by all threads
  virtual double bytes() const { return 0; }  // read from memory

  // Seconds of one run, repeated for about |budget|; the slowest thread counts.
  double seconds(int threads, double budget);
};

// out[rows, n] = a[rows, k] x weight, threads on equal ranges of columns.
class GemmWork final : public Work {
 public:
  GemmWork(const kernels::GemmKernels& kernels, int64_t rows, int64_t k, int64_t n);
  void run(int thread, int threads) override;
  double flops() const override;
  double bytes() const override { return static_cast<double>(layout_.bytes()); }

 private:
  const kernels::GemmKernels& kernels_;
  kernels::PanelLayout layout_;
  int64_t rows_;
  std::vector<uint16_t> a_, out_;
  Memory panels_;
};

struct AttentionShape {
  int64_t head_dim = 64, group = 3;
  int64_t keys = 2048;       // of each sequence
  int64_t positions = 1;     // query positions, the last ones of the keys, each seeing all before it
  int64_t heads = 1;         // KV heads times sequences times layers: all of them are walked in one run
  int64_t block_size = 128;  // tokens of a KV page, which holds one head here
};

// As the attention step calls the kernels: at most 60 query rows at a time, ranges of 512 keys merged in order; threads
// on equal ranges of heads, or of positions where there is one head only.
class AttentionWork final : public Work {
 public:
  AttentionWork(const kernels::AttentionKernels& kernels, const AttentionShape& shape);
  void run(int thread, int threads) override;
  double flops() const override;  // what the mask leaves
  double bytes() const override;

 private:
  void run_head(int64_t head, int64_t first, int64_t last, float* scratch);
  void run_call(int64_t head, int64_t first, int64_t positions, float* scratch);

  const kernels::AttentionKernels& kernels_;
  AttentionShape shape_;
  kernels::KvPageLayout layout_;
  int64_t pages_;
  Memory kv_;
  std::vector<uint16_t> q_, out_;
  std::vector<kernels::KvGroup> groups_;  // [head][group]
};

// The limit a figure is compared with.
class Meter {
 public:
  // Multiply-adds of an instruction.
  explicit Meter(kernels::PeakKind peak) : peak_(peak) {}
  // Bytes from memory: a stream read of a buffer of |bytes|.
  explicit Meter(size_t bytes) : stream_(std::make_unique<kernels::StreamReader>(bytes)) {}
  double measure(int threads) const;  // G/s
  bool reads() const { return stream_ != nullptr; }

 private:
  kernels::PeakKind peak_ = kernels::PeakKind::kMulAddXmm;
  std::unique_ptr<kernels::StreamReader> stream_;
};

struct Figure {
  double rate = 0;   // GFLOP/s, or GB/s
  double share = 0;  // of the meter
};
Figure measure(Work& work, const Meter& meter, int threads, int rounds, double budget = 0.04);

// The instruction an attention kernel is made of.
kernels::PeakKind peak_of(const kernels::AttentionKernels& kernels);
kernels::PeakKind peak_of(const kernels::GemmKernels& kernels);

}  // namespace spyre::bench
