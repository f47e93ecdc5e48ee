#include "plugins/spyre/compiler/divide_matmuls.h"

#include <gtest/gtest.h>

#include "plugins/spyre/compiler/plan_lx.h"
#include "plugins/spyre/device/core_map.h"
#include "plugins/spyre/device/cost.h"
#include "plugins/spyre/testing/planned_graph.h"

namespace spyre::compiler {
namespace {

using testing::PlannedGraph;

PlannedGraph product(int64_t m, int64_t k, int64_t n) {
  return PlannedGraph(
      fmt::format("input %x : f16[{},{}]\nparam %w : f16[{},{}]\n%y = matmul(%x, %w)\nreturn %y", m, k, k, n),
      "divide-matmuls");
}

// No exact division is cheaper by the planner's rates, counted here from the shape alone.
TEST(DivideMatmuls, TakesTheCheapestOfAllDivisions) {
  for (const auto& [m, k, n] : {std::array<int64_t, 3>{1, 4096, 4096},
                                {512, 4096, 4096},
                                {512, 4096, 128},
                                {7, 192, 640},
                                {64, 64, 64},
                                {33, 14336, 4096},
                                {512, 4096, 28672}}) {
    const PlannedGraph g = product(m, k, n);
    const auto ns = [&](int64_t rows, int64_t reduced, int64_t columns) {
      return device::planner_ns({.macs = m * k * n,
                                 .cores = rows * reduced * columns,
                                 .reduction_splits = reduced,
                                 .rows_per_core = m / rows,
                                 .out_elements = m * n,
                                 .x_bytes = 2 * m * k,
                                 .x_fanout = columns,
                                 .w_bytes = 2 * k * n,
                                 .w_fanout = rows,
                                 .out_bytes = 2 * m * n});
    };
    const std::vector<int64_t>& s = g.plan().ops[0].splits;
    const double chosen = ns(s[1], s[0], s[2]);
    for (int64_t rows = 1; rows <= 32; ++rows) {
      for (int64_t reduced = 1; rows * reduced <= 32; ++reduced) {
        for (int64_t columns = 1; rows * reduced * columns <= 32; ++columns) {
          if (m % rows != 0 || k / 64 % reduced != 0 || n / 64 % columns != 0) continue;
          EXPECT_LE(chosen, ns(rows, reduced, columns) * (1 + 1e-12)) << m << "x" << k << "x" << n;
        }
      }
    }
  }
}

TEST(DivideMatmuls, APlanMadeForSpansIsLeftAlone) {
  const PlannedGraph g = product(512, 32768, 8192);
  EXPECT_EQ(g.plan().ops[0].splits, (std::vector<int64_t>{1, 1, 4}));
}

TEST(DivideMatmuls, BatchesAreDividedToo) {
  const PlannedGraph g("input %x : f16[8,64,64]\nparam %w : f16[8,64,64]\n%y = matmul(%x, %w)\nreturn %y",
                       "divide-matmuls");
  EXPECT_EQ(g.plan().ops[0].split_dims, (std::vector<std::string>{"K", "0", "1", "2"}));
  EXPECT_EQ(g.plan().ops[0].extents, (std::vector<int64_t>{1, 8, 64, 1}));
  EXPECT_GT(g.plan().ops[0].splits[1], 1);
}

// Rows and columns of sticks without divisors leave K to divide, where what it saves in computing is more than the
// partial sums cost: of 31 x 64 results, 1 ns each in a product with one weight, a tenth of it where each matrix has
// its own.
TEST(DivideMatmuls, KIsDividedWhereRowsAndColumnsCannotBe) {
  const auto splits = [](const PlannedGraph& g) { return g.plan().ops[0].splits; };
  EXPECT_EQ(splits(product(31, 14336, 64)), (std::vector<int64_t>{4, 1, 1}));
  EXPECT_EQ(splits(product(128, 14336, 37 * 64)), (std::vector<int64_t>{4, 8, 1}));
  EXPECT_EQ(splits(product(31, 1536, 64))[0], 1);
  EXPECT_EQ(splits(PlannedGraph("input %x : f16[1,31,1536]\nparam %w : f16[1,1536,64]\n%y = matmul(%x, %w)\nreturn %y",
                                "divide-matmuls")),
            (std::vector<int64_t>{3, 1, 1, 1}));
  // The parts of a sum are on neighbours, and what they leave is not kept in the scratchpad.
  const PlannedGraph g(
      "input %x : f16[31,14336]\nparam %w : f16[14336,64]\n%y = matmul(%x, %w)\n%z = neg(%y)\nreturn %z");
  EXPECT_GT(g.log["L-45"], 0);
  device::CardPlan plan = g.plan();
  plan_lx(plan);
  EXPECT_EQ(plan.buffers[plan.ops[0].outputs[0]].lx.reason, device::LxReason::kPartialSums);
}

}  // namespace
}  // namespace spyre::compiler
