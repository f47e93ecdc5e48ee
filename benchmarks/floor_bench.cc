// floor_bench [--rounds R] [--only NAME]: every kernel that this machine would choose against its floor: the least
// share of the machine's limit that it must reach. Prints a table; exits 1 when a kernel is below. For quiet machines.
//
// The limit of a piece of work is the longer of two times: its multiply-adds at the rate of the instruction that the
// kernel is made of (asm peak meter), and its bytes at the rate of a stream read of as many. Meters are measured before
// and after each round in this process (A-B-A); the median of the rounds counts.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "kernel_fixtures.h"

namespace {

using namespace spyre;
using namespace spyre::kernels;
using bench::Meter;

// A row of so many elements in the cache, again and again.
class RowWork final : public bench::Work {
 public:
  RowWork(const RowKernels& kernels, bool norm)
      : kernels_(kernels),
        norm_(norm),
        a_(bench::random_words(kernels.dtype, kElements, 1)),
        b_(bench::random_words(kernels.dtype, kElements, 2)),
        y_(kElements),
        stream_(kElements, 1.0f),
        sum_(kElements) {}
  void run(int, int) override {
    if (norm_) {
      kernels_.add_rms_norm_wide(a_.data(), stream_.data(), b_.data(), 1e-5f, sum_.data(), y_.data(), kElements);
    } else {
      kernels_.activate_mul(UnaryOp::kSilu, a_.data(), b_.data(), y_.data(), kElements);
    }
  }
  // Of an element: the sum, its square and that sum, two products; or exp (23), silu (3) and the product.
  double flops() const override { return kElements * (norm_ ? 5.0 : 27.0); }

 private:
  static constexpr int64_t kElements = 4096;
  const RowKernels& kernels_;
  bool norm_;
  std::vector<uint16_t> a_, b_, y_;
  std::vector<float> stream_, sum_;
};

struct Floor {
  std::string what;
  double least;
  int threads;
  PeakKind peak;
  bool computes;  // multiply-adds count
  bool reads;     // bytes count
  std::function<std::unique_ptr<bench::Work>()> make;
};

// ---------------------------------------------------------------- the floors

// Many rows. Zen 4: 92-97% in quiet minutes, less four points that the median of a few rounds moves. Intel's cores with
// tiles: converts share the ports of the multiply-adds, and of the tile peak panels in memory order give 40%. AVX2 has
// 16 registers: a tile of 6 x 16 leaves no room to keep a weight. Without vdpbf16ps, shifts and masks stand beside the
// multiply-adds; the order of AMX by multiply-adds takes two accumulators and an addition for each 32 products.
double gemm_floor(const GemmKernels& k, bool tiles) {
  if (k.level == CpuLevel::kAmx) return 0.40;
  if (tiles) return k.core == CoreKind::kWithTiles ? 0.80 : 0.60;
  if (k.level == CpuLevel::kAvx2) return k.order == DotOrder::kTile ? 0.75 : 0.84;
  if (k.order == DotOrder::kTile || k.core == CoreKind::kWithTiles) return 0.82;
  return 0.88;
}

// Prompts. bf16 by vdpbf16ps has half the dot time of f16 beside the same softmax: with a head of 64 its exponentials
// take a fifth of the time. Zen 4: 63-67% with a head of 64, 70-75% with 128.
double prefill_floor(const AttentionKernels& k, int64_t head_dim) {
  if (bench::peak_of(k) != PeakKind::kDotBf16) return 0.60;
  return head_dim == 64 ? 0.55 : 0.62;
}

void gemm_floors(const CpuFeatures& features, int threads, std::vector<Floor>& out) {
  for (const GemmKernels& k : all_gemm_kernels()) {
    if (!runs_on(k, features) || k.level == CpuLevel::kPortable) continue;  // portable: no meter that it aims at
    const PeakKind peak = bench::peak_of(k);
    const auto add = [&](const char* what, int64_t rows, int64_t kk, int64_t n, double least, int team, bool reads) {
      out.push_back({std::string(k.name) + " " + what, least, team, peak, true, reads,
                     [&k, rows, kk, n] { return std::make_unique<bench::GemmWork>(k, rows, kk, n); }});
    };
    const double least = gemm_floor(k, features.amx_bf16);
    add("M=64 K=576 N=960", 64, 576, 960, least, 1, false);
    add("M=512 K=1536 N=576", 512, 1536, 576, least, 1, false);
    // Only the kernel that would be chosen: the others stand in for machines that are not this one.
    if (&select_kernels(features, k.dtype, k.order) != &k) continue;
    // 16 rows wait for the weights' first row tile. Of 34 MB of weights a part comes from memory, and K in three blocks
    // goes through partial sums: 85-93% measured; asking for the next panel block during this one changed nothing.
    add("M=16 K=576 N=3072", 16, 576, 3072, least - 0.02, 1, false);
    add("M=64 K=2048 N=8192", 64, 2048, 8192, least - 0.06, 1, true);
    add("M=1 K=576 N=131072", 1, 576, 131072, 0.90, threads, true);
    add("M=4 K=576 N=131072", 4, 576, 131072, 0.75, threads, true);
  }
}

void attention_floors(const CpuFeatures& features, int threads, std::vector<Floor>& out) {
  for (const AttentionKernels& k : all_attention_kernels()) {
    if (!level_runs_on(k.level, features) || &select_attention_kernels(features, k.dtype, k.order) != &k) continue;
    const auto add = [&](const std::string& what, const bench::AttentionShape& shape, double least, int team,
                         bool reads) {
      out.push_back({std::string(k.name) + " " + what, least, team, bench::peak_of(k), !reads, reads,
                     [&k, shape] { return std::make_unique<bench::AttentionWork>(k, shape); }});
    };
    for (const auto& [d, group] : {std::pair<int64_t, int64_t>{64, 3}, {128, 4}}) {
      const std::string head = "head " + std::to_string(d);
      for (int64_t keys : {512, 2048}) {
        add("prompt of " + std::to_string(keys) + ", " + head,
            {.head_dim = d, .group = group, .keys = keys, .positions = keys}, prefill_floor(k, d), 1, false);
      }
      // The `tile` order by multiply-adds computes longer than memory takes: it is for machines with tiles.
      const double least = k.order == DotOrder::kTile ? 0.33 : 0.85;
      add("decode at 2048, " + head, {.head_dim = d, .group = group, .heads = 200 * 64 / d}, least, threads, true);
    }
  }
}

// Loads, stores and single operations, not multiply-adds: shares of the FMA peak that a quiet machine gives, less 15%.
void row_floors(const CpuFeatures& features, std::vector<Floor>& out) {
  for (const RowKernels& k : all_row_kernels()) {
    if (!level_runs_on(k.level, features) || &select_row_kernels(features, k.dtype) != &k) continue;
    const PeakKind peak = features.avx512 ? PeakKind::kFmaZmm
                          : features.avx2 ? PeakKind::kFmaYmm
                                          : PeakKind::kMulAddXmm;
    for (bool norm : {true, false}) {
      out.push_back({std::string("rows ") + k.name + (norm ? " wide norm" : " silu x up"), norm ? 0.20 : 0.28, 1, peak,
                     true, false, [&k, norm] { return std::make_unique<RowWork>(k, norm); }});
    }
  }
}

// ---------------------------------------------------------------- the table

// The share of the limit: seconds that the machine would need, over those that the kernel takes.
double share_of(const Floor& floor, int rounds) {
  const std::unique_ptr<bench::Work> work = floor.make();
  const Meter peak(floor.peak);
  const std::unique_ptr<Meter> stream =
      floor.reads ? std::make_unique<Meter>(static_cast<size_t>(work->bytes())) : nullptr;
  const auto limit = [&] {
    const double compute = floor.computes ? work->flops() / (peak.measure(floor.threads) * 1e9) : 0;
    const double memory = stream ? work->bytes() / (stream->measure(floor.threads) * 1e9) : 0;
    return std::max(compute, memory);
  };
  std::vector<double> shares;
  for (int i = 0; i < rounds; ++i) {
    const double before = limit();
    const double seconds = work->seconds(floor.threads, 0.03);
    shares.push_back((before + limit()) / 2 / seconds);
  }
  return bench::median(shares);
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 5;
  std::string only;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--rounds" && i + 1 < argc) {
      rounds = std::max(1, std::atoi(argv[++i]));
    } else if (arg == "--only" && i + 1 < argc) {
      only = argv[++i];
    } else {
      std::fprintf(stderr, "usage: floor_bench [--rounds R] [--only NAME]\n");
      return 2;
    }
  }
  const CpuFeatures features = CpuFeatures::detected();
  std::vector<Floor> floors;
  gemm_floors(features, usable_cpus(), floors);
  attention_floors(features, usable_cpus(), floors);
  row_floors(features, floors);
  std::printf("%s, %d usable CPUs, median of %d rounds: share of the machine's limit\n%-58s %7s %6s %6s\n",
              to_string(features).c_str(), usable_cpus(), rounds, "kernel", "threads", "share", "floor");
  int below = 0;
  for (const Floor& floor : floors) {
    if (floor.what.find(only) == std::string::npos) continue;
    double share = share_of(floor, rounds);
    // Neighbours on the machine only take: below its floor, a kernel is measured twice more, on other memory.
    for (int again = 0; again < 2 && share < floor.least; ++again) share = std::max(share, share_of(floor, rounds));
    const bool low = share < floor.least;
    below += low;
    std::printf("%-58s %7d %5.1f%% %5.1f%%%s\n", floor.what.c_str(), floor.threads, 100 * share, 100 * floor.least,
                low ? "  BELOW" : "");
    std::fflush(stdout);
  }
  if (below > 0) std::fprintf(stderr, "floor_bench: %d below their floors\n", below);
  return below > 0 ? 1 : 0;
}
