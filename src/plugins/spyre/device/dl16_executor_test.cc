// Programs in the card's own numbers: what crosses, what is rounded, how a sum is divided, and how far whole models
// drift from fp32.
#include "plugins/spyre/device/dl16_executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <random>

#include "base/error.h"
#include "base/half.h"
#include "graph/random_graph.h"
#include "graph/text.h"
#include "platform/cpu_platform.h"
#include "platform/testing/golden.h"
#include "platform/testing/runner_harness.h"
#include "plugins/spyre/compiler/compiler.h"
#include "plugins/spyre/platform.h"
#include "plugins/spyre/testing/device_run.h"

namespace spyre::device {
namespace {

using graph::Array;
using Rows = std::vector<std::vector<float>>;

Rows run(const Program& program, const graph::Bindings& bindings, const Dl16Settings& settings = {}) {
  SoftwareDevice device({.mode = ExecutionMode::kDl16, .features = CpuFeatures::detected(), .dl16 = settings});
  return testing::run_on_device(device, program, bindings);
}

std::shared_ptr<const Program> compile(const graph::Graph& graph) {
  static compiler::Compiler compiler({.features = CpuFeatures::detected()});
  return compiler.compile(graph);
}

Array halves(const graph::Graph& graph, graph::ValueId value, const std::vector<float>& values) {
  return Array::of(graph.type(value), values);
}

// In and out again, without an operator: the copies alone.
TEST(Dl16Executor, ValuesCrossThroughTheFormat) {
  const graph::Graph graph = graph::parse("graph g {\n input %x : f16[4] \n return %x\n}");
  const auto program = compile(graph);
  graph::Bindings bindings;
  bindings.inputs = {halves(graph, graph.inputs[0], {65504, 1 + 0x1p-10f, -0x1p-20f, 0.333251953125f})};
  const float third = f16_to_f32(f32_to_f16(0.333251953125f));
  EXPECT_EQ(run(*program, bindings)[0], (std::vector<float>{65472, 1 + 0x1p-9f, -0x1p-21f, round_to_dl16(third)}));
  const Dl16Settings fixed{.rules = {.ties = Dl16Ties::kZero, .subnormals = Dl16Subnormals::kFixed}};
  EXPECT_EQ(run(*program, bindings, fixed)[0][1], 1);
  EXPECT_EQ(run(*program, bindings, fixed)[0][2], -0x1p-20f);
}

// Operators with one card function are rounded once; fp32 is left alone.
TEST(Dl16Executor, ResultsAreRoundedToTheFormat) {
  const graph::Graph graph = graph::parse(R"(graph g {
    input %x : f16[2,64]
    input %w : f32[2,64]
    %y = mul(%x, %x)
    %z = mul(%w, %w)
    return %y, %z
  })");
  std::mt19937 engine(7);
  std::vector<float> values(128);
  for (float& x : values) x = f16_to_f32(f32_to_f16(static_cast<float>(engine() % 2000) / 1000 - 1));
  graph::Bindings bindings;
  bindings.inputs = {halves(graph, graph.inputs[0], values), halves(graph, graph.inputs[1], values)};
  const Rows got = run(*compile(graph), bindings);
  int coarser = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const float x = dl16_to_f32(f16_to_dl16(f32_to_f16(values[i])));
    const float rounded = round_to_dl16(x * x);
    EXPECT_EQ(got[0][i], f16_to_f32(f32_to_f16(rounded))) << values[i];
    EXPECT_EQ(got[1][i], values[i] * values[i]);
    coarser += got[0][i] != f16_to_f32(f32_to_f16(values[i] * values[i])) ? 1 : 0;
  }
  EXPECT_GT(coarser, 20);
}

// A product whose K is divided: the parts are added in ring order, which large terms of both signs make visible.
TEST(Dl16Executor, SplitsOfKAreExecuted) {
  const int64_t k = 4096;
  const graph::Graph graph = graph::parse(R"(graph g {
    input %x : bf16[1,4096]
    param %w : bf16[4096,64]
    %y = matmul(%x, %w) {dtype="f32"}
    return %y
  })");
  const auto program = compile(graph);
  // Divided as a planner might that had no other dimension to cut.
  constexpr int64_t splits = 8;
  for (DeviceOp& op : const_cast<CardPlan&>(program->card).ops) {
    if (op.name != "batchmatmul") continue;
    ASSERT_GE(op.reduced_dim, 0);
    ASSERT_EQ(op.extents[op.reduced_dim] % splits, 0);
    op.splits.assign(op.splits.size(), 1);
    op.splits[op.reduced_dim] = splits;
  }
  std::vector<float> x(k, 1.0f), w(static_cast<size_t>(k * 64), 1.0f);
  const int64_t per_core = k / splits;
  x[0] = 0x1p28f;                  // swallows the ones of its own part
  x[2 * per_core - 1] = -0x1p28f;  // takes it away at the end of the next one
  float expected = 0, undivided = 0;
  for (int64_t core = 0; core < splits; ++core) {
    float part = 0;
    for (int64_t i = core * per_core; i < (core + 1) * per_core; ++i) part += x[i];
    expected += part;
  }
  for (const float value : x) undivided += value;
  ASSERT_NE(round_to_dl16(expected), round_to_dl16(undivided));
  graph::Bindings bindings;
  bindings.inputs = {halves(graph, graph.inputs[0], x)};
  bindings.parameters = {halves(graph, graph.parameters[0], w)};
  EXPECT_EQ(run(*program, bindings)[0], std::vector<float>(64, round_to_dl16(expected)));
}

// Random programs run, and give DL16 numbers.
TEST(Dl16Executor, RandomGraphsGiveNumbersOfTheFormat) {
  int lowered = 0;
  for (uint64_t seed = 5000; seed < 5300; ++seed) {
    const graph::RandomGraph random = graph::random_graph(seed);
    std::shared_ptr<const Program> program;
    try {
      program = compile(random.graph);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kRuleViolation) << error.what();
      continue;
    }
    ++lowered;
    const Rows got = run(*program, random.bindings);
    for (size_t i = 0; i < got.size(); ++i) {
      const DType dtype = random.graph.type(random.graph.outputs[i]).dtype;
      if (!is_16bit_float(dtype)) continue;
      for (const float x : got[i]) {
        // A subnormal of f16 left the device as the nearest one.
        if (dtype == DType::kF16 && std::fabs(x) < 0x1p-14f) continue;
        ASSERT_EQ(x, round_to_dl16(x)) << "seed " << seed;
      }
    }
  }
  EXPECT_GT(lowered, 150);
}

// ---------------------------------------------------------------- whole models

Rows logits_of(const platform::Platform& platform, const platform::testing::Golden& golden, DType dtype,
               const std::string& numerics) {
  platform::EngineConfig config{.model = golden.model, .dtype = dtype};
  config.max_model_len = 256;
  if (platform.name() == "spyre") config.block_size = 64;
  config.threads = 1;
  config.numerics = numerics;
  platform::testing::RunnerHarness harness(platform, config, 64);
  const std::vector<int32_t>& tokens = golden.prompt.token_ids;
  const std::vector<int32_t> head(tokens.begin(), tokens.begin() + std::min<int64_t>(std::ssize(tokens), 70));
  return harness.prefill(head, {13, 40, 17}, harness.blocks_for(std::ssize(head)));
}

// Root of the squared differences over that of the squares.
double drift(const Rows& a, const Rows& b) {
  double difference = 0, squares = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[i].size(); ++j) {
      difference += std::pow(static_cast<double>(a[i][j]) - b[i][j], 2);
      squares += std::pow(static_cast<double>(a[i][j]), 2);
    }
  }
  return std::sqrt(difference / squares);
}

// Nine mantissa bits drift about twice as far as ten, on every family; in chunks of DL16 further.
TEST(Dl16Executor, ModelsDriftABitFurtherThanInHalfPrecision) {
  int models = 0;
  for (const auto& folder : platform::testing::golden_folders()) {
    const platform::testing::Golden golden = platform::testing::load_golden(folder);
    const Rows exact = logits_of(platform::CpuPlatform(), golden, DType::kF32, "ieee");
    const double half = drift(exact, logits_of(plugin::SpyrePlatform(), golden, DType::kF16, "ieee"));
    const double card = drift(exact, logits_of(plugin::SpyrePlatform(), golden, DType::kF16, "dl16"));
    setenv("SPYRE_DL16_ACCUMULATE", "64", 1);
    const double chunks = drift(exact, logits_of(plugin::SpyrePlatform(), golden, DType::kF16, "dl16"));
    unsetenv("SPYRE_DL16_ACCUMULATE");
    std::cout << folder.filename().string() << ": f16 " << half << ", dl16 " << card << ", in chunks of 64 " << chunks
              << "\n";
    EXPECT_GT(card, 1.2 * half);
    EXPECT_LT(card, 8 * half);
    EXPECT_GT(chunks, card);
    EXPECT_LT(chunks, 0.2);
    ++models;
  }
  EXPECT_GT(models, 0);
}

// A real model: the choices of fp32 survive nine mantissa bits nearly everywhere.
TEST(Dl16Executor, SmolLm2KeepsItsChoices) {
  const std::filesystem::path model = platform::testing::smollm2_model();
  if (model.empty()) GTEST_SKIP() << "no SmolLM2 file: set SPYRE_TEST_MODEL or run `./run model`";
  platform::testing::Golden golden;
  golden.model = model;
  for (const platform::testing::GoldenPrompt& prompt : platform::testing::smollm2_prompts()) {
    if (prompt.token_ids.size() > golden.prompt.token_ids.size()) golden.prompt = prompt;
  }
  golden.prompt.token_ids.resize(std::min<size_t>(golden.prompt.token_ids.size(), 24));
  const Rows exact = logits_of(platform::CpuPlatform(), golden, DType::kF32, "ieee");
  const Rows half = logits_of(plugin::SpyrePlatform(), golden, DType::kF16, "ieee");
  const Rows card = logits_of(plugin::SpyrePlatform(), golden, DType::kF16, "dl16");
  int64_t agree = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const auto best = [](const std::vector<float>& row) {
      return std::max_element(row.begin(), row.end()) - row.begin();
    };
    agree += best(exact[i]) == best(card[i]) ? 1 : 0;
  }
  std::cout << "SmolLM2: f16 " << drift(exact, half) << ", dl16 " << drift(exact, card) << ", first choice equal at "
            << agree << " of " << exact.size() << "\n";
  EXPECT_GT(drift(exact, card), drift(exact, half));
  EXPECT_LT(drift(exact, card), 0.05);
  EXPECT_GE(agree * 10, std::ssize(exact) * 8);
}

// A decode of several sequences as one batched program, beside each of them alone.
TEST(Dl16Executor, BatchedDecodesEqualSingleOnes) {
  const auto golden = platform::testing::load_golden(platform::testing::golden_folders().front());
  platform::EngineConfig config{.model = golden.model, .dtype = DType::kF16};
  config.max_model_len = 128;
  config.block_size = 64;
  config.threads = 1;
  config.numerics = "dl16";
  platform::testing::RunnerHarness together(plugin::SpyrePlatform(), config, 16);
  platform::testing::RunnerHarness alone(plugin::SpyrePlatform(), config, 16);
  std::vector<platform::testing::Piece> prompts, steps;
  Rows single;
  for (int32_t s = 0; s < 5; ++s) {
    const std::vector<int32_t> blocks{2 * s + 1, 2 * s + 2};
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 60 + 2 * s; ++i) tokens.push_back((7 * i + 11 * s) % 90 + 1);
    const auto length = std::ssize(tokens);
    alone.run({{.tokens = tokens, .blocks = blocks}});
    const Rows rows = alone.run({{.tokens = {5 + s}, .start = length, .blocks = blocks}});
    single.insert(single.end(), rows.begin(), rows.end());
    together.run({{.tokens = tokens, .blocks = blocks}});
    steps.push_back({.tokens = {5 + s}, .start = length, .blocks = blocks});
  }
  const Rows batched = together.run(steps);
  ASSERT_EQ(batched.size(), single.size());
  for (size_t i = 0; i < single.size(); ++i) {
    EXPECT_TRUE(platform::testing::equal_bits(batched[i], single[i])) << "sequence " << i;
  }
}

}  // namespace
}  // namespace spyre::device
