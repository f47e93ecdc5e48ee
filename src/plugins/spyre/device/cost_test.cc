#include "plugins/spyre/device/cost.h"

#include <gtest/gtest.h>

namespace spyre::device {
namespace {

TEST(Cost, AMatmulIsBoundByTheSlowerOfComputeAndMemory) {
  // One row against a large weight: memory.
  OpWork decode{
      .macs = 4096 * 4096, .read_bytes = 4096 * 4096 * 2, .write_bytes = 8192, .cores = 32, .rows_per_core = 1};
  const double bytes_only = 4096.0 * 4096 * 2 / 150;
  EXPECT_NEAR(estimate_ns(measured_costs(), decode), bytes_only, bytes_only * 0.01);
  // 512 rows: compute.
  OpWork prefill = decode;
  prefill.macs *= 512;
  prefill.rows_per_core = 64;
  EXPECT_NEAR(estimate_ns(measured_costs(), prefill), 4096.0 * 4096 * 512 / 32 / 1140, 1);
}

TEST(Cost, ThePlannerAvoidsPartialSums) {
  MatmulDivision whole{.macs = 64 * 4096 * 4096, .cores = 32, .rows_per_core = 64, .out_elements = 64 * 4096};
  MatmulDivision split = whole;
  split.reduction_splits = 2;
  EXPECT_LT(planner_ns(whole), planner_ns(split));
  MatmulDivision shared = whole;
  whole.w_bytes = shared.w_bytes = 1 << 25;
  shared.w_fanout = 32;
  EXPECT_LT(planner_ns(whole), planner_ns(shared));
}

TEST(Cost, AttentionGrowsWithItsKeys) {
  const OpWork work = attention_work(64, 9, 3, 128, 1024, 2);
  EXPECT_EQ(work.macs, int64_t{2} * 64 * 9 * 1024 * 128);
  EXPECT_EQ(work.read_bytes, (64 * 9 + 2 * 1024 * 3) * 128 * 2);
  EXPECT_LT(estimate_ns(measured_costs(), work), estimate_ns(measured_costs(), attention_work(64, 9, 3, 128, 4096, 2)));
}

// Published: y = 2x at about 100 GB/s from 2 to 32 MB, and pointwise addition of two 16 MB tensors.
TEST(Cost, BalancedReadsAndWritesTakeAbout105GBs) {
  const int64_t bytes = 8 << 20;
  const double ns = estimate_ns(measured_costs(), {.read_bytes = bytes, .write_bytes = bytes, .cores = 32});
  EXPECT_NEAR(2.0 * bytes / ns, 105, 3);
}

TEST(Cost, TheSpecIsNeverSlowerThanWhatWasMeasured) {
  for (int64_t macs : {int64_t{0}, int64_t{1} << 20, int64_t{1} << 33}) {
    for (int64_t bytes : {1 << 10, 1 << 20, 1 << 28}) {
      const OpWork work{.macs = macs, .elements = bytes / 2, .read_bytes = bytes, .write_bytes = bytes, .cores = 32};
      EXPECT_LE(estimate_ns(spec_costs(), work), estimate_ns(measured_costs(), work));
    }
  }
}

TEST(Cost, EveryFigureSaysWhereItComesFrom) {
  for (const CostConfig* c : {&measured_costs(), &spec_costs()}) {
    for (const Figure* f : {&c->macs_per_ns_core, &c->rows_half_rate, &c->rows_exponent, &c->memory_gb_s,
                            &c->mixing_ns_byte, &c->restickify_gb_s, &c->pointwise_ns_core, &c->launch_ns}) {
      EXPECT_FALSE(f->provenance.empty());
      EXPECT_FALSE(f->confidence.empty());
    }
  }
}

}  // namespace
}  // namespace spyre::device
