#include "plugins/spyre/device/step_cost.h"

#include <gtest/gtest.h>

#include <vector>

#include "graph/text.h"
#include "plugins/spyre/compiler/compiler.h"

namespace spyre::device {
namespace {

TEST(StepCost, AttentionIsAddedPerSequence) {
  compiler::Compiler compiler({.features = CpuFeatures::detected()});
  const auto program = compiler.compile(graph::parse(R"(graph g {
    input %q : f16[@64,8,64]
    input %batch : batch
    state %kv : kv f16[2,64]
    %a = attention(%q, %kv, %batch) {scale=0.125}
    return %a
  })"));
  std::vector<attention::SequencePlan> sequences(2);
  sequences[0].variant = {.query = 1, .blocks = 16};
  sequences[1].variant = {.query = 32, .blocks = 4};
  attention::StepTables tables;
  tables.block_size = 128;
  const double none = estimate_step_ns(*program, &tables);
  EXPECT_EQ(none, program->card.estimated_ns);
  const auto one = [&](int64_t query, int64_t keys) {
    return estimate_ns(measured_costs(), attention_work(query, 8, 2, 64, keys, 2));
  };
  tables.sequences = std::span(sequences).first(1);
  EXPECT_DOUBLE_EQ(estimate_step_ns(*program, &tables), none + one(1, 2048));
  tables.sequences = sequences;
  EXPECT_DOUBLE_EQ(estimate_step_ns(*program, &tables), none + one(1, 2048) + one(32, 512));
  // One program over the grid, on more cores than a sequence has KV heads for.
  tables.grid = attention::Variant{.query = 1, .blocks = 16, .sequences = 64};
  const double grid = estimate_ns(measured_costs(), batched_attention_work(64, 8, 2, 64, 2048, 2));
  EXPECT_DOUBLE_EQ(estimate_step_ns(*program, &tables), none + grid);
  EXPECT_LE(grid, 64 * one(1, 2048));
}

}  // namespace
}  // namespace spyre::device
