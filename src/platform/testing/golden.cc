#include "platform/testing/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "formats/safetensors.h"
#include "runner/testing/steps.h"

namespace spyre::platform::testing {
namespace {

namespace fs = std::filesystem;

nlohmann::json read_json(const fs::path& path) {
  return nlohmann::json::parse(read_file(path, 16 << 20));
}

GoldenPrompt read_prompt(const std::string& name, const nlohmann::json& json, const char* ids_key) {
  GoldenPrompt prompt{.name = name,
                      .token_ids = json.at(ids_key),
                      .top5_ids = json.at("top5_ids"),
                      .top5_logprobs = json.at("top5_logprobs")};
  if (json.contains("greedy_token_ids")) prompt.greedy_ids = json["greedy_token_ids"].get<std::vector<int32_t>>();
  return prompt;
}

GoldenError read_error(const nlohmann::json& json) {
  const nlohmann::json& run = json.at("sdpa");
  return {.logits = run.at("all_positions"),
          .logits_rms = run.at("all_positions_rms"),
          .top5_logprob = run.at("top5_logprob"),
          .greedy_ids_equal = json.at("greedy_ids_equal")};
}

double log_sum_exp(const std::vector<float>& logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - most);
  return most + std::log(sum);
}

}  // namespace

std::vector<fs::path> golden_folders() {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(SPYRE_GOLDEN_DATA)) {
    if (fs::exists(entry.path() / "config.json")) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

Golden load_golden(const fs::path& folder) {
  const nlohmann::json json = read_json(folder / "golden.json");
  Golden golden{.name = folder.filename().string(),
                .model = folder,
                .prompt = read_prompt(folder.filename().string(), json, "prompt_token_ids"),
                .logit_rows = json.at("logit_rows"),
                .max_abs_logit = json.at("max_abs_logit")};
  golden.hf_error[DType::kF16] = read_error(json.at("hf_error").at("float16"));
  golden.hf_error[DType::kBF16] = read_error(json.at("hf_error").at("bfloat16"));

  const auto file = formats::SafetensorsFile::open(folder / "golden.safetensors");
  const formats::SafetensorsTensor* tensor = file->find("logits");
  SPYRE_CHECK(tensor != nullptr && tensor->dtype == DType::kF32 && tensor->shape.size() == 2);
  const std::vector<std::byte> values = file->data(*tensor);
  for (int64_t i = 0; i < tensor->shape[0]; ++i) {
    std::vector<float>& row = golden.logits.emplace_back(tensor->shape[1]);
    std::memcpy(row.data(), values.data() + i * tensor->shape[1] * sizeof(float), row.size() * sizeof(float));
  }
  SPYRE_CHECK(golden.logits.size() == golden.logit_rows.size());
  return golden;
}

LogitsError logits_error(const Golden& golden, const std::vector<std::vector<float>>& logits) {
  double worst = 0, squares = 0, count = 0;
  for (size_t i = 0; i < golden.logit_rows.size(); ++i) {
    const std::vector<float>& got = logits.at(golden.logit_rows[i]);
    const std::vector<float>& want = golden.logits[i];
    SPYRE_CHECK(got.size() == want.size(), "{} != {}", got.size(), want.size());
    for (size_t t = 0; t < want.size(); ++t) {
      double difference = std::abs(static_cast<double>(got[t]) - want[t]);
      if (std::isnan(difference)) difference = std::numeric_limits<double>::infinity();
      worst = std::max(worst, difference);
      squares += difference * difference;
      ++count;
    }
  }
  return {worst / golden.max_abs_logit, std::sqrt(squares / count) / golden.max_abs_logit};
}

Top5Error top5_error(const GoldenPrompt& prompt, const std::vector<std::vector<float>>& logits, double tie) {
  Top5Error error;
  int64_t count = 0, within = 0;
  SPYRE_CHECK(logits.size() == prompt.top5_ids.size(), "{} != {}", logits.size(), prompt.top5_ids.size());
  for (size_t p = 0; p < logits.size(); ++p) {
    const std::vector<float>& row = logits[p];
    const double total = log_sum_exp(row);
    std::vector<int32_t> order(row.size());
    std::iota(order.begin(), order.end(), 0);
    const size_t top = prompt.top5_ids[p].size();
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(top), order.end(),
                      [&row](int32_t a, int32_t b) { return row[a] != row[b] ? row[a] > row[b] : a < b; });
    for (size_t k = 0; k < top; ++k) {
      const double want = prompt.top5_logprobs[p][k];
      const double of_id = std::abs(row[prompt.top5_ids[p][k]] - total - want);
      const double of_place = std::abs(row[order[k]] - total - want);
      const double difference = std::isnan(of_id) ? std::numeric_limits<double>::infinity() : std::max(of_id, of_place);
      error.worst = std::max(error.worst, difference);
      error.mean += difference;
      within += difference <= 0.01;
      ++count;
      const bool clear_above = k == 0 || prompt.top5_logprobs[p][k - 1] - want > 2 * tie;
      const bool clear_below = k + 1 < top && want - prompt.top5_logprobs[p][k + 1] > 2 * tie;
      if (clear_above && clear_below && order[k] != prompt.top5_ids[p][k]) ++error.wrong_ids;
    }
  }
  error.mean /= static_cast<double>(count);
  error.share_within = static_cast<double>(within) / static_cast<double>(count);
  return error;
}

std::vector<int32_t> greedy_ids(Instance& instance, const std::vector<int32_t>& prompt, int64_t count, int64_t chunk) {
  runner::Worker& worker = *instance.worker;
  const int64_t block_size = worker.kv_cache_spec().block_size;
  const int64_t total = std::ssize(prompt) + count;
  std::vector<int32_t> blocks((total + block_size - 1) / block_size);
  std::iota(blocks.begin(), blocks.end(), 1);
  std::vector<int32_t> drawn;
  const auto step = [&](const runner::Step& s) {
    const runner::StepOutput output = worker.sample(worker.execute(s));
    for (const runner::RequestOutput& request : output.requests) {
      if (request.error) throw_error(ErrorCode::kInternal, "{}", *request.error);
      drawn.insert(drawn.end(), request.tokens.begin(), request.tokens.end());
    }
  };
  int64_t done = std::min(chunk, std::ssize(prompt));
  step(runner::testing::StepBuilder().start("golden", prompt, blocks, done));
  while (std::ssize(drawn) < count) {
    const int64_t left = std::ssize(prompt) - done;
    const int64_t tokens = left > 0 ? std::min(chunk, left) : 1;
    step(runner::testing::StepBuilder().go_on("golden", done, std::ssize(drawn), tokens));
    done += tokens;
  }
  worker.sample(worker.execute(runner::testing::StepBuilder().finish("golden")));
  return drawn;
}

GoldenBounds golden_bounds(const Golden& golden, DType dtype) {
  if (dtype == DType::kF32) return {.logits = 1e-4, .logits_rms = 1e-4, .top5_logprob = 1e-3, .greedy = true};
  const GoldenError& error = golden.hf_error.at(dtype);
  return {.logits = 1.5 * error.logits,
          .logits_rms = 1.05 * error.logits_rms,
          .top5_logprob = 1.5 * std::max(error.top5_logprob, error.logits * golden.max_abs_logit),
          .greedy = error.greedy_ids_equal};
}

bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y) || (std::isnan(x) && std::isnan(y));
  });
}

void expect_golden(const Platform& platform, EngineConfig config, const Golden& golden, const GoldenBounds& bounds,
                   uint64_t seed) {
  SCOPED_TRACE(fmt::format("{} on {}, seed {}", golden.name, platform.name(), seed));
  config.model = golden.model;
  const std::vector<int32_t>& prompt = golden.prompt.token_ids;
  RunnerHarness harness(platform, config);
  const int64_t budget = *harness.config().max_num_batched_tokens;
  const std::vector<int32_t> blocks = harness.blocks_for(std::ssize(prompt));
  const std::vector<std::vector<float>> logits = harness.prefill(prompt, {budget}, blocks);
  EXPECT_TRUE(harness.last().row_errors.empty());

  const LogitsError error = logits_error(golden, logits);
  EXPECT_LE(error.worst, bounds.logits);
  EXPECT_LE(error.rms, bounds.logits_rms);
  const Top5Error top5 = top5_error(golden.prompt, logits, bounds.top5_logprob);
  EXPECT_LE(top5.worst, bounds.top5_logprob);
  EXPECT_EQ(top5.wrong_ids, 0);
  ::testing::Test::RecordProperty("logits_error", fmt::format("{:.3g}", error.worst));
  ::testing::Test::RecordProperty("logits_rms", fmt::format("{:.3g} of {:.3g}", error.rms, bounds.logits_rms));
  ::testing::Test::RecordProperty("top5_error", fmt::format("{:.3g}", top5.worst));

  std::mt19937_64 engine(seed);
  std::vector<int64_t> chunks(40);
  for (int64_t& chunk : chunks) chunk = 1 + static_cast<int64_t>(engine() % 41);
  const std::vector<std::vector<float>> chunked = harness.prefill(prompt, chunks, blocks);
  for (size_t p = 0; p < prompt.size(); ++p) {
    ASSERT_TRUE(equal_bits(logits[p], chunked[p])) << "chunks change position " << p;
  }
  if (!bounds.greedy) return;
  Instance instance = make_instance(platform, config);
  EXPECT_EQ(greedy_ids(instance, prompt, std::ssize(golden.prompt.greedy_ids), std::min<int64_t>(budget, 37)),
            golden.prompt.greedy_ids);
}

void expect_smollm2(const Platform& platform, const EngineConfig& config, const GoldenPrompt& prompt, double bound) {
  SCOPED_TRACE(fmt::format("{} on {}", prompt.name, platform.name()));
  RunnerHarness harness(platform, config);
  const int64_t count = std::ssize(prompt.token_ids);
  const auto logits = harness.prefill(prompt.token_ids, {count}, harness.blocks_for(count));
  const Top5Error error = top5_error(prompt, logits, bound);
  EXPECT_LE(error.worst, bound);
  EXPECT_EQ(error.wrong_ids, 0);
  ::testing::Test::RecordProperty("top5_error", fmt::format("{:.3g}", error.worst));
  ::testing::Test::RecordProperty("top5_mean", fmt::format("{:.3g}", error.mean));
  if (prompt.greedy_ids.empty()) return;
  Instance instance = make_instance(platform, config);
  EXPECT_EQ(greedy_ids(instance, prompt.token_ids, std::ssize(prompt.greedy_ids), 16), prompt.greedy_ids);
}

std::vector<GoldenPrompt> smollm2_prompts() {
  const nlohmann::json json = read_json(fs::path(SPYRE_GOLDEN_DATA) / "smollm2" / "golden.json");
  std::vector<GoldenPrompt> prompts;
  for (const auto& [name, prompt] : json.at("prompts").items()) {
    prompts.push_back(read_prompt(name, prompt, "token_ids"));
    prompts.back().hf_float16_logprob = prompt.at("hf_float16_error").at("top5_logprob");
  }
  return prompts;
}

fs::path smollm2_model() {
  if (const char* path = std::getenv("SPYRE_TEST_MODEL"); path != nullptr && fs::exists(path)) return path;
  const fs::path source = fs::path(SPYRE_GOLDEN_DATA).parent_path().parent_path().parent_path();
  const fs::path file = source / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf";
  return fs::exists(file) ? file : fs::path();
}

}  // namespace spyre::platform::testing
