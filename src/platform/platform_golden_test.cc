// The committed golden models, and SmolLM2 where its file is, on the reference platform.
#include <gtest/gtest.h>

#include "base/dtype.h"
#include "platform/cpu_platform.h"
#include "platform/testing/golden.h"

namespace spyre::platform {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

class CpuGolden : public ::testing::TestWithParam<std::tuple<std::filesystem::path, DType>> {};

TEST_P(CpuGolden, EqualsTransformers) {
  const auto& [folder, dtype] = GetParam();
  const Golden golden = load_golden(folder);
  expect_golden(CpuPlatform(), {.dtype = dtype}, golden, golden_bounds(golden, dtype), 20240701);
}

INSTANTIATE_TEST_SUITE_P(Models, CpuGolden,
                         ::testing::Combine(::testing::ValuesIn(golden_folders()),
                                            ::testing::Values(DType::kF32, DType::kF16, DType::kBF16)),
                         [](const auto& info) {
                           return std::get<0>(info.param).filename().string() + "_" +
                                  std::string(to_string(std::get<1>(info.param)));
                         });

// A comparison must notice a mistake: other weights' logits, a token too many.
TEST(Golden, NoticesAMistake) {
  const Golden golden = load_golden(golden_folders().front());
  RunnerHarness harness(CpuPlatform(), {.model = golden.model});
  std::vector<int32_t> tokens = golden.prompt.token_ids;
  tokens[3] = (tokens[3] + 1) % static_cast<int32_t>(harness.model().vocab_size);
  const int64_t count = std::ssize(tokens);
  const auto logits = harness.prefill(tokens, {count}, harness.blocks_for(count));
  EXPECT_GT(logits_error(golden, logits), 0.01);
  EXPECT_GT(top5_error(golden.prompt, logits, 1e-3).worst, 0.01);
  EXPECT_GT(top5_error(golden.prompt, logits, 1e-3).wrong_ids, 0);
}

class CpuSmolLm2 : public ::testing::TestWithParam<std::string> {};

TEST_P(CpuSmolLm2, EqualsTransformers) {
  const std::filesystem::path model = smollm2_model();
  if (model.empty()) GTEST_SKIP() << "no SmolLM2 file: set SPYRE_TEST_MODEL or run `./run model`";
  for (const GoldenPrompt& prompt : smollm2_prompts()) {
    if (prompt.name != GetParam()) continue;
    const EngineConfig config{.model = model, .max_model_len = 512};
    const CpuPlatform platform;
    RunnerHarness harness(platform, config);
    const int64_t count = std::ssize(prompt.token_ids);
    const auto logits = harness.prefill(prompt.token_ids, {count}, harness.blocks_for(count));
    const Top5Error error = top5_error(prompt, logits, 0.005);
    EXPECT_LE(error.worst, 0.01);
    EXPECT_EQ(error.wrong_ids, 0);
    RecordProperty("top5_error", fmt::format("{:.3g}", error.worst));
    if (prompt.greedy_ids.empty()) return;
    Instance instance = make_instance(platform, config);
    EXPECT_EQ(greedy_ids(instance, prompt.token_ids, std::ssize(prompt.greedy_ids), 16), prompt.greedy_ids);
    return;
  }
  FAIL() << "no prompt " << GetParam();
}

INSTANTIATE_TEST_SUITE_P(Prompts, CpuSmolLm2, ::testing::Values("prose", "dialogue", "completion", "question"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace spyre::platform
