#include "plugins/spyre/device/cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <tuple>

#include "plugins/spyre/device/anchors.h"
#include "plugins/spyre/device/cost_page.h"

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
  // Partial sums cost a tenth where each matrix of a batch has a weight of its own.
  MatmulDivision batched = split;
  batched.batched = true;
  EXPECT_LT(planner_ns(batched), planner_ns(split));
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

TEST(Cost, AttentionIsDividedByKvHeadsThenByRows) {
  EXPECT_EQ(attention_work(1, 32, 8, 128, 1024, 2).cores, 8);     // four rows a KV head: not divided
  EXPECT_EQ(attention_work(512, 32, 8, 128, 1024, 2).cores, 32);  // 2048 rows a KV head
  EXPECT_EQ(attention_work(512, 8, 1, 128, 1024, 2).cores, 32);
  EXPECT_EQ(attention_work(512, 8, 1, 128, 1024, 2).rows_per_core, 128);
  EXPECT_EQ(attention_work(32, 8, 1, 128, 1024, 2).cores, 4);  // 256 rows: four parts of 64
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
    std::set<std::string_view> names;
    for (const NamedFigure& f : figures_of(*c)) {
      EXPECT_TRUE(names.insert(f.name).second) << f.name;
      EXPECT_FALSE(f.figure->provenance.empty()) << c->name << " " << f.name;
      const std::set<std::string_view> marks{"H", "M", "L", "INF", "UNK"};
      EXPECT_TRUE(marks.count(f.figure->confidence)) << c->name << " " << f.name;
    }
  }
  // Every figure of the struct is listed: a configuration is its name and figures, nothing else.
  EXPECT_EQ(sizeof(CostConfig), sizeof(std::string_view) + figures_of(measured_costs()).size() * sizeof(Figure));
}

// Numbers by hand from the published formulas.
TEST(Cost, ReductionsFallWithRowsAndWithFewerCores) {
  const auto read = [](int64_t rows, int64_t cores) {
    return 1e6 /
           estimate_ns(measured_costs(),
                       {.read_bytes = 1'000'000, .cores = cores, .kind = WorkKind::kReduction, .reduced_rows = rows});
  };
  EXPECT_NEAR(read(1, 32), 150, 0.01);  // 114 + 61 is above the memory's rate
  EXPECT_NEAR(read(3700, 32), 114 + 61 * 0.36788, 0.01);
  EXPECT_NEAR(read(1 << 24, 32), 114, 0.01);
  EXPECT_NEAR(read(1 << 24, 4), 114 * 0.43, 0.01);
  EXPECT_NEAR(read(1 << 24, 5), 114 * 0.43, 0.01);  // the next power of two below
}

TEST(Cost, ProductsHaveTheRateOfTheirForm) {
  OpWork work{.macs = 32 * 1'000'000, .cores = 32, .rows_per_core = 64};
  EXPECT_NEAR(estimate_ns(measured_costs(), work), 1e6 / 1140, 1e-6);
  work.rows_per_core = 16;  // (1/4)^0.35
  EXPECT_NEAR(estimate_ns(measured_costs(), work), 1e6 / 1140 * 1.624505, 1e-2);
  work.rows_per_core = 64;
  work.split_reduction = true;
  EXPECT_NEAR(estimate_ns(measured_costs(), work), 2e6 / 1140, 1e-6);
  work.split_reduction = false;
  work.compute_scale = 2;  // FP8
  EXPECT_NEAR(estimate_ns(measured_costs(), work), 1e6 / 2280, 1e-6);
  work.compute_scale = 1;
  work.form = MatmulForm::kBatchDefaultOrder;
  for (const auto& [batch, cores, rate] : {std::tuple{3, 32, 1140.0}, {4, 32, 160.0}, {4, 8, 160.0}, {4, 4, 1140.0}}) {
    work.batch = batch;
    work.cores = cores;
    work.macs = int64_t{1'000'000} * cores;
    EXPECT_NEAR(estimate_ns(measured_costs(), work), 1e6 / rate, 1e-6) << batch << " on " << cores;
  }
}

TEST(Cost, ShortRunsMakeARestickifySlow) {
  OpWork work{.read_bytes = 1 << 24, .write_bytes = 1 << 24, .cores = 32, .kind = WorkKind::kRestickify};
  const double whole = estimate_ns(measured_costs(), work);
  EXPECT_NEAR(whole, 2.0 * (1 << 24) / 116, 1e-3);
  work.run_bytes = 1 << 20;  // longer than a request: no faster
  EXPECT_EQ(estimate_ns(measured_costs(), work), whole);
  work.run_bytes = 128;  // 131072 requests of 64 ns, 32 cores at once
  EXPECT_NEAR(estimate_ns(measured_costs(), work), (1 << 24) / 116.0 + 131072 * 64.0 / 32, 1e-3);
  work.run_bytes = 2;  // a word at least
  EXPECT_NEAR(estimate_ns(measured_costs(), work), (1 << 24) / 116.0 + 131072 * 64.0 / 32, 1e-3);
}

TEST(Cost, TransportsFallWithTheirSplits) {
  OpWork work{.read_bytes = 1'000'000, .cores = 1, .kind = WorkKind::kTranspose};
  double last = 0;
  for (const int64_t cores : {1, 2, 4, 8, 16, 32}) {
    work.cores = cores;
    const double ns = estimate_ns(measured_costs(), work);
    EXPECT_GT(ns, last);
    last = ns;
  }
  EXPECT_NEAR(1e6 / last, 44, 0.01);
}

TEST(Cost, CoarseTilesLoseWhatTheyDoNotFill) {
  OpWork work{.macs = 1, .read_bytes = 3'000'000, .write_bytes = 0, .cores = 32};
  EXPECT_NEAR(estimate_ns(measured_costs(), work), 20'000, 1e-6);
  work.tile_rows = 64;
  work.tile_columns = 2048;  // 2^17: 0.45 log2(2) read again; full tiles gain 8 %
  EXPECT_NEAR(estimate_ns(measured_costs(), work), 20'000 * 1.45 / 1.08, 1);
  work.tile_columns = 1024;  // 2^16: nothing is read again
  const double full = 20'000 / 1.08;
  EXPECT_NEAR(estimate_ns(measured_costs(), work), full, 1);
  work.working_set_bytes = 2 << 20;  // four times what there is room for: 4^0.15
  EXPECT_NEAR(estimate_ns(measured_costs(), work), full * 1.23114, 5);
  work.working_set_bytes = 0;
  work.tile_rows = 1;  // (1/7.9)^0.5 x 0.5^0.38
  EXPECT_NEAR(estimate_ns(measured_costs(), work), 20'000 * 2.81069 * 1.30134, 10);
}

TEST(Cost, RelayoutIsAddedToTheBundle) {
  OpWork work{.read_bytes = 150'000, .cores = 32};
  work.relayouts = {{.runs = 100, .split = 4, .bytes = 5470}};
  EXPECT_NEAR(estimate_ns(measured_costs(), work), 1000 + 100 * (-1.14 + 3.92 * 2) + 40, 1e-6);
  // The fit ends at a split of 8.
  work.relayouts.push_back({.runs = 0, .split = 32, .bytes = 5470});
  EXPECT_NEAR(estimate_ns(measured_costs(), work), 1000 + 100 * (-1.14 + 3.92 * 2) + 40 + 80, 1e-6);
}

// In a bundle one operation computes while another moves.
TEST(Cost, ABundleOverlapsComputingAndMoving) {
  const OpWork moves{.read_bytes = 1'500'000, .cores = 32};
  const OpWork computes{.macs = 32 * 11'400'000, .cores = 32, .rows_per_core = 64};
  const OpWork both[] = {moves, computes};
  EXPECT_NEAR(bundle_time(measured_costs(), both).total(), 10'000, 1e-6);
  EXPECT_NEAR(estimate_ns(measured_costs(), moves) + estimate_ns(measured_costs(), computes), 20'000, 1e-6);
  // Reading of one mixes with writing of the other.
  const OpWork writes{.write_bytes = 1'500'000, .cores = 32};
  const OpWork copy[] = {moves, writes};
  EXPECT_NEAR(bundle_time(measured_costs(), copy).total(), 20'000 + 0.00574 * 1'500'000, 1e-6);
}

TEST(Cost, SumsBetweenCardsTakeARing) {
  EXPECT_EQ(all_reduce_ns(measured_costs(), 1 << 20, 1), 0);
  // 2 (n - 1) messages of a quarter each, 25 GB/s and 10 us.
  EXPECT_NEAR(all_reduce_ns(measured_costs(), 1'000'000, 4), 6 * (250'000 / 25.0 + 10'000), 1e-6);
  EXPECT_GT(all_reduce_ns(measured_costs(), 1'000'000, 8), all_reduce_ns(measured_costs(), 1'000'000, 4));
}

// A miss is a defect of the model, unless another source says otherwise of the same work.
TEST(Anchors, AreMetButWhereSourcesContradictEachOther) {
  const std::vector<Anchor> all = anchors();
  std::set<std::string_view> contradicted;
  for (const Anchor& a : all) {
    EXPECT_NEAR(a.ratio(), 1, a.seen ? 1 : 0.01) << a.name;
    if (a.contradicted_by.empty()) {
      EXPECT_TRUE(a.met()) << a.name << ": model / published = " << a.ratio();
      continue;
    }
    contradicted.insert(a.name);
    EXPECT_FALSE(a.met()) << a.name << " is met: nothing contradicts it";
    EXPECT_FALSE(a.note.empty()) << a.name;
    const auto other =
        std::find_if(all.begin(), all.end(), [&](const Anchor& o) { return o.name == a.contradicted_by; });
    ASSERT_NE(other, all.end()) << a.contradicted_by;
    EXPECT_DOUBLE_EQ(other->model_ns, a.model_ns) << "not the same work";
    EXPECT_TRUE(irreconcilable(a, *other)) << a.name << ", " << other->name;
    EXPECT_TRUE(other->met()) << other->name;
  }
  EXPECT_EQ(contradicted, std::set<std::string_view>{"y = 2x of 1 MB, 66.0 GB/s"});
}

TEST(Anchors, CanBeMetTogetherWhereTheirErrorsOverlap) {
  const Anchor at_100{.published_ns = 100, .rms = 0.1};
  EXPECT_FALSE(irreconcilable(at_100, {.published_ns = 130, .rms = 0.1}));
  EXPECT_TRUE(irreconcilable(at_100, {.published_ns = 130, .rms = 0.02}));
  EXPECT_TRUE(irreconcilable({.published_ns = 130, .rms = 0.02}, at_100));
}

// What the note of the contradicted anchor says: no fixed cost explains both 1 MB and 2 MB.
TEST(Anchors, NoFixedCostExplainsTheSmallTensor) {
  double least = 0, most = 1e9;
  for (const Anchor& a : anchors()) {
    if (!a.name.starts_with("y = 2x") || a.source != "AH") continue;
    least = std::max(least, a.published_ns * (1 - 2 * a.rms) - a.model_ns);
    most = std::min(most, a.published_ns * (1 + 2 * a.rms) - a.model_ns);
  }
  EXPECT_NEAR(least, 6.4e3, 100);
  EXPECT_NEAR(most, 5.3e3, 100);
}

// 98.3 TFLOP/s over 150 GB/s.
TEST(Anchors, TheRidgeIsWhereItWasPublished) {
  const double flops = 2 * 32 * spec_costs().macs_per_ns_core.value * 1e9;
  EXPECT_NEAR(flops / (measured_costs().memory_gb_s.value * 1e9), 655, 1);
}

TEST(CostPage, IsUpToDate) {
  const std::filesystem::path path = std::filesystem::path(SPYRE_TEST_DATA) / "../../docs/cost.md";
  if (std::getenv("SPYRE_REGENERATE") != nullptr) std::ofstream(path) << cost_page();
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), cost_page())
      << "docs/cost.md differs from the figures; SPYRE_REGENERATE=1 ./run test CostPage writes it again";
}

}  // namespace
}  // namespace spyre::device
