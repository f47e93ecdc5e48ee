// What is particular to `cpu` and `null`; what all platforms share is in testing/conformance_cases.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "formats/safetensors.h"
#include "platform/cpu_platform.h"
#include "platform/null_platform.h"
#include "platform/testing/golden.h"
#include "platform/testing/runner_harness.h"

namespace spyre::platform {
namespace {

using ::testing::HasSubstr;

EngineConfig completed(EngineConfig config, int64_t positions = 8192) {
  formats::ModelConfig model;
  model.max_position_embeddings = positions;
  CpuPlatform().check_and_update_config(config, model);
  return config;
}

TEST(CpuPlatform, Defaults) {
  const EngineConfig config = completed({});
  EXPECT_EQ(config.dtype, DType::kF32);
  EXPECT_EQ(config.max_model_len, 8192);
  EXPECT_EQ(config.block_size, 16);
  EXPECT_EQ(config.max_num_seqs, 256);
  EXPECT_EQ(config.max_num_batched_tokens, 512);
}

TEST(CpuPlatform, OriginalPresetCapsWhatWasNotGiven) {
  EXPECT_EQ(completed({.preset = Preset::kOriginal}).max_model_len, 2048);
  EXPECT_EQ(completed({.preset = Preset::kOriginal}).max_num_seqs, 4);
  EXPECT_EQ(completed({.preset = Preset::kOriginal}, 100).max_model_len, 100);
  EXPECT_EQ(completed({.preset = Preset::kOriginal, .max_model_len = 4096}).max_model_len, 4096);
}

TEST(CpuPlatform, TakesAnyBlockSize) {
  for (const int64_t size : {1, 3, 16, 128, 65536}) EXPECT_EQ(completed({.block_size = size}).block_size, size);
  EXPECT_THROW(completed({.block_size = 65537}), Error);
}

TEST(CpuPlatform, HasNoCardsNumerics) {
  EngineConfig config;
  config.numerics = "dl16";
  EXPECT_THROW(completed(config), Error);
}

TEST(CpuPlatform, RefusesMoreThanOneRank) {
  try {
    completed({.tensor_parallel_size = 2});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("tensor_parallel_size is 2"));
  }
}

TEST(CpuRunner, ReportsMemoryAndModel) {
  const CpuPlatform platform;
  testing::RunnerHarness harness(platform, {.model = SPYRE_GOLDEN_DATA "/llama_mha16", .block_size = 16}, 5);
  const nlohmann::json report = harness.runner().report("all");
  EXPECT_EQ(report["memory"]["kv_blocks"], 5);
  EXPECT_EQ(report["memory"]["kv_cache_bytes"], 5 * harness.spec().bytes_per_block);
  EXPECT_EQ(report["model"]["class"], "LlamaForCausalLM");
  EXPECT_EQ(report["model"]["dtype"], "f32");
  EXPECT_GE(report["memory"]["weights_bytes"].get<int64_t>(), 4 * report["model"]["parameters"].get<int64_t>());
}

TEST(CpuRunner, BlocksOutsideTheCacheAreRefused) {
  const CpuPlatform platform;
  testing::RunnerHarness harness(platform, {.model = testing::golden_folders().front()}, 5);
  EXPECT_THROW(harness.runner().copy_block(1, 5), Error);
  EXPECT_THROW(harness.runner().copy_block(-1, 2), Error);
  EXPECT_THROW(harness.runner().zero_block(5), Error);
}

// A weight of the second layer is infinite: every row goes bad there, and the message says so.
TEST(CpuRunner, NonFiniteRowsNameTheLayer) {
  std::string name = (std::filesystem::temp_directory_path() / "spyre_cpu_XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const std::filesystem::path folder = name, original = std::filesystem::path(SPYRE_GOLDEN_DATA) / "llama_mha16";
  std::filesystem::copy_file(original / "config.json", folder / "config.json");
  std::string bytes = read_file(original / "model.safetensors", 16 << 20);
  const auto file = formats::SafetensorsFile::open(original / "model.safetensors");
  const formats::SafetensorsTensor* weight = file->find("model.layers.1.mlp.down_proj.weight");
  ASSERT_NE(weight, nullptr);
  const std::vector<float> row(weight->shape[1], std::numeric_limits<float>::infinity());
  std::memcpy(bytes.data() + weight->offset, row.data(), row.size() * sizeof(float));
  std::ofstream(folder / "model.safetensors", std::ios::binary) << bytes;

  const CpuPlatform platform;
  testing::RunnerHarness harness(platform, {.model = folder}, 4);
  harness.run({{.tokens = {9, 10, 11}, .start = 0, .blocks = {1}}});
  ASSERT_EQ(harness.last().row_errors.size(), 3u);
  for (const auto& [index, message] : harness.last().row_errors) {
    EXPECT_THAT(message, HasSubstr("after model.layers.1 at position"));
  }
  std::filesystem::remove_all(folder);
}

TEST(NullPlatform, AnswersUnimplementedByName) {
  const auto expect = [](const char* call, const std::function<void()>& body) {
    try {
      body();
      ADD_FAILURE() << call;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_EQ(std::string(error.what()), fmt::format("null platform: {} is unimplemented", call));
    }
  };
  const NullPlatform platform;
  NullModelRunner runner;
  EngineConfig config;
  runner::Logits logits;
  expect("check_and_update_config", [&] { platform.check_and_update_config(config, {}); });
  expect("create_model_runner", [&] { platform.create_model_runner(config, nullptr); });
  expect("load_model", [&] { runner.load_model({}); });
  expect("vocab_size", [&] { static_cast<void>(runner.vocab_size()); });
  expect("kv_cache_spec", [&] { runner.kv_cache_spec(); });
  expect("initialize_kv_cache", [&] { runner.initialize_kv_cache(2); });
  expect("warm_up", [&] { runner.warm_up(); });
  expect("forward", [&] { runner.forward({}, logits); });
  expect("copy_block", [&] { runner.copy_block(1, 2); });
  expect("zero_block", [&] { runner.zero_block(1); });
  expect("report", [&] { static_cast<void>(runner.report("all")); });
}

}  // namespace
}  // namespace spyre::platform
