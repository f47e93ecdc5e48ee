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

TEST(CpuGoldenTileOrder, EqualsTransformers) {
  const Golden golden = load_golden(golden_folders().front());
  expect_golden(CpuPlatform(), {.dtype = DType::kBF16, .order = "tile"}, golden, golden_bounds(golden, DType::kBF16),
                7);
}

// The same checkpoints as GGUF files (tests/golden/make_gguf.py): other names, other keys, Q and K rows interleaved
// where the family's files have them so; the same values, so the same bits.
class CpuGguf : public ::testing::TestWithParam<std::string> {};

TEST_P(CpuGguf, GivesTheBitsOfTheFolder) {
  const std::filesystem::path data = SPYRE_GOLDEN_DATA;
  const Golden golden = load_golden(data / GetParam());
  const std::filesystem::path file = data.parent_path() / "data_gguf" / (GetParam() + ".gguf");
  RunnerHarness folder(CpuPlatform(), {.model = golden.model, .dtype = DType::kF32});
  RunnerHarness gguf(CpuPlatform(), {.model = file, .dtype = DType::kF32});
  EXPECT_EQ(gguf.model().architectures, folder.model().architectures);
  const int64_t count = std::ssize(golden.prompt.token_ids);
  const auto want = folder.prefill(golden.prompt.token_ids, {count}, folder.blocks_for(count));
  const auto got = gguf.prefill(golden.prompt.token_ids, {count}, gguf.blocks_for(count));
  ASSERT_EQ(got.size(), want.size());
  for (size_t p = 0; p < want.size(); ++p) ASSERT_TRUE(equal_bits(got[p], want[p])) << "position " << p;
}

INSTANTIATE_TEST_SUITE_P(Files, CpuGguf, ::testing::Values("granite_gqa64", "qwen2_gqa64", "qwen2_yarn", "qwen3_gqa48"),
                         [](const auto& info) { return info.param; });

// A comparison must notice a mistake: other weights' logits, a token too many.
TEST(Golden, NoticesAMistake) {
  const Golden golden = load_golden(golden_folders().front());
  RunnerHarness harness(CpuPlatform(), {.model = golden.model});
  std::vector<int32_t> tokens = golden.prompt.token_ids;
  tokens[3] = (tokens[3] + 1) % static_cast<int32_t>(harness.model().vocab_size);
  const int64_t count = std::ssize(tokens);
  const auto logits = harness.prefill(tokens, {count}, harness.blocks_for(count));
  EXPECT_GT(logits_error(golden, logits).worst, 0.01);
  EXPECT_GT(top5_error(golden.prompt, logits, 1e-3).worst, 0.01);
  EXPECT_GT(top5_error(golden.prompt, logits, 1e-3).wrong_ids, 0);
}

class CpuSmolLm2 : public ::testing::TestWithParam<std::string> {};

TEST_P(CpuSmolLm2, EqualsTransformers) {
  const std::filesystem::path model = smollm2_model();
  if (model.empty()) GTEST_SKIP() << "no SmolLM2 file: set SPYRE_TEST_MODEL or run `./run model`";
  for (const GoldenPrompt& prompt : smollm2_prompts()) {
    if (prompt.name != GetParam()) continue;
    expect_smollm2(CpuPlatform(), {.model = model, .max_model_len = 512}, prompt, 0.01);
    return;
  }
  FAIL() << "no prompt " << GetParam();
}

INSTANTIATE_TEST_SUITE_P(Prompts, CpuSmolLm2, ::testing::Values("prose", "dialogue", "completion", "question"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace spyre::platform
