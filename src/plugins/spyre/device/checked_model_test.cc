// Whole models in checked mode: every program of a model, with its paddings, views and tables, gives the bits of the
// host plans.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "platform/testing/golden.h"
#include "platform/testing/runner_harness.h"
#include "plugins/spyre/platform.h"

namespace spyre::device {
namespace {

using platform::testing::Golden;
using platform::testing::Piece;
using Rows = std::vector<std::vector<float>>;

// A prefill in chunks, a second sequence beside it, and decode steps of both.
Rows logits_of(const Golden& golden, DType dtype, bool checked) {
  platform::EngineConfig config{.model = golden.model, .dtype = dtype};
  config.max_model_len = 256;
  config.block_size = 64;
  config.threads = 1;
  config.checked = checked;
  platform::testing::RunnerHarness harness(plugin::SpyrePlatform(), config, 12);
  const std::vector<int32_t>& tokens = golden.prompt.token_ids;
  const auto first = static_cast<int64_t>(std::min<size_t>(tokens.size(), 70));
  const std::vector<int32_t> head(tokens.begin(), tokens.begin() + first);
  Rows all = harness.prefill(head, {13, 40, 1}, {7, 2, 9});
  auto add = [&all](Rows rows) { all.insert(all.end(), rows.begin(), rows.end()); };
  add(harness.run({{.tokens = {5}, .start = first, .blocks = {7, 2, 9}},
                   {.tokens = {3, 4, 5}, .blocks = {4}, .rows = Piece::Rows::kAll}}));
  add(harness.run(
      {{.tokens = {6}, .start = 3, .blocks = {4}}, {.tokens = {7}, .start = first + 1, .blocks = {7, 2, 9}}}));
  return all;
}

// The card's pages in the other layout: logits of the card plan and of the host plan, and both equal those of
// token-major pages.
TEST(CheckedModel, HeadMajorPagesGiveTheSameBits) {
  const Golden golden = platform::testing::load_golden(platform::testing::golden_folders().front());
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const Rows want = logits_of(golden, dtype, true);
    setenv("SPYRE_ATTN_KV_LAYOUT", "head_major", 1);
    const Rows checked = logits_of(golden, dtype, true), host = logits_of(golden, dtype, false);
    unsetenv("SPYRE_ATTN_KV_LAYOUT");
    ASSERT_EQ(checked.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_TRUE(platform::testing::equal_bits(checked[i], want[i])) << to_string(dtype) << ", row " << i;
      ASSERT_TRUE(platform::testing::equal_bits(host[i], want[i])) << to_string(dtype) << ", row " << i;
    }
  }
}

TEST(CheckedModel, EqualsTheHostPlans) {
  int models = 0;
  for (const auto& folder : platform::testing::golden_folders()) {
    const Golden golden = platform::testing::load_golden(folder);
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      const Rows host = logits_of(golden, dtype, false), checked = logits_of(golden, dtype, true);
      ASSERT_EQ(host.size(), checked.size());
      for (size_t i = 0; i < host.size(); ++i) {
        ASSERT_TRUE(platform::testing::equal_bits(host[i], checked[i]))
            << folder << " in " << to_string(dtype) << ", row " << i;
      }
      ++models;
    }
  }
  EXPECT_GT(models, 0);
}

}  // namespace
}  // namespace spyre::device
