// What the model runner promises beyond the conformance suite: nothing compiles while serving, artifacts do not grow
// with depth, each step moves exactly its tables, and bits do not depend on buckets, threads or kernels.
#include "plugins/spyre/worker/model_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "base/cpu.h"
#include "base/error.h"
#include "base/log.h"
#include "formats/checkpoint.h"
#include "formats/model_config.h"
#include "platform/testing/golden.h"
#include "platform/testing/runner_harness.h"
#include "plugins/spyre/platform.h"

namespace spyre::worker {
namespace {

using namespace platform::testing;  // NOLINT(google-build-using-namespace)
using platform::EngineConfig;
using plugin::SpyrePlatform;
using Rows = std::vector<std::vector<float>>;

Golden golden_named(const std::string& name) {
  for (const auto& folder : golden_folders()) {
    if (folder.filename() == name) return load_golden(folder);
  }
  throw std::runtime_error("no golden model " + name);
}

SpyreModelRunner& runner_of(RunnerHarness& harness) {
  return dynamic_cast<SpyreModelRunner&>(harness.runner());
}

EngineConfig config_for(const Golden& golden, DType dtype) {
  EngineConfig config{.model = golden.model, .dtype = dtype};
  config.max_model_len = 512;
  config.threads = 2;
  return config;
}

Rows logits_of(const EngineConfig& config, const std::vector<int32_t>& tokens, const std::vector<int64_t>& chunks) {
  RunnerHarness harness(SpyrePlatform(), config);
  return harness.prefill(tokens, chunks, harness.blocks_for(std::ssize(tokens)));
}

void expect_equal(const Rows& a, const Rows& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_TRUE(equal_bits(a[i], b[i])) << what << ", row " << i;
}

struct NumericsCase {
  DType dtype;
  const char* order;
};

class BitEqual : public ::testing::TestWithParam<NumericsCase> {};

TEST_P(BitEqual, OverBucketsThreadsChunksAndBlockSizes) {
  const Golden golden = golden_named("llama_gqa64");
  EngineConfig base = config_for(golden, GetParam().dtype);
  base.order = GetParam().order;
  const std::vector<int32_t>& tokens = golden.prompt.token_ids;
  const Rows want = logits_of(base, tokens, {std::ssize(tokens)});

  EngineConfig buckets = base;
  buckets.token_buckets = std::vector<int64_t>{3, 17, 40, 200};
  expect_equal(logits_of(buckets, tokens, {1, 17, 3, 40}), want, "other buckets, chunked");
  for (int threads : {1, 3}) {
    EngineConfig other = base;
    other.threads = threads;
    expect_equal(logits_of(other, tokens, {29}), want, fmt::format("{} threads", threads));
  }
  EngineConfig blocks = base;
  blocks.block_size = 64;
  expect_equal(logits_of(blocks, tokens, {7, 64, 1}), want, "blocks of 64");
}

// The products of a layer wait for each other, and for nothing else.
TEST(HostPlans, ALayerHasFiveBarriersAtMost) {
  for (const auto& folder : golden_folders()) {
    const Golden golden = load_golden(folder);
    EngineConfig config = config_for(golden, DType::kBF16);
    config.max_model_len = 128;
    RunnerHarness harness(SpyrePlatform(), config);
    int blocks = 0;
    for (const nlohmann::json& program : harness.runner().report("layouts")) {
      if (!program["graph"].get<std::string>().ends_with("DecoderLayer")) continue;
      ++blocks;
      EXPECT_LE(program["host_barriers"]["few_rows"], 5) << golden.model << ": " << program["host_phases"].dump(2);
      EXPECT_LE(program["host_barriers"]["many_rows"], 3) << golden.model << ": " << program["host_phases"].dump(2);
    }
    EXPECT_GT(blocks, 0) << golden.model;
  }
}

TEST_P(BitEqual, OverInstructionSets) {
  const Golden golden = golden_named("llama3_scaled");
  EngineConfig base = config_for(golden, GetParam().dtype);
  base.max_model_len.reset();
  base.order = GetParam().order;
  const std::vector<int32_t>& tokens = golden.prompt.token_ids;
  const Rows want = logits_of(base, tokens, {200});
  for (const char* level : {"portable", "avx2", "avx512"}) {
    setenv("SPYRE_CPU_FEATURES", level, 1);
    expect_equal(logits_of(base, tokens, {200}), want, level);
  }
  unsetenv("SPYRE_CPU_FEATURES");
}

INSTANTIATE_TEST_SUITE_P(Dtypes, BitEqual,
                         ::testing::Values(NumericsCase{DType::kF16, "auto"}, NumericsCase{DType::kBF16, "pair"},
                                           NumericsCase{DType::kBF16, "tile"}),
                         [](const auto& info) {
                           return std::string(to_string(info.param.dtype)) + "_" + info.param.order;
                         });

TEST(ModelRunner, NothingCompilesAfterReady) {
  const Golden golden = golden_named("llama_mha16");
  RunnerHarness harness(SpyrePlatform(), config_for(golden, DType::kF16));
  SpyreModelRunner& runner = runner_of(harness);
  std::mt19937 random(7);
  const std::vector<int32_t> blocks = harness.blocks_for(512);
  for (int64_t length = 1; length <= 300; length += 1 + static_cast<int64_t>(random() % 23)) {
    std::vector<int32_t> tokens(static_cast<size_t>(length));
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 200);
    const auto rows = random() % 2 == 0 ? Piece::Rows::kLast : Piece::Rows::kAll;
    harness.run({{.tokens = tokens, .start = static_cast<int64_t>(random() % 200), .blocks = blocks, .rows = rows}});
  }
  EXPECT_EQ(runner.compiles_after_ready(), 0);
}

TEST(ModelRunner, LazyRecordingCountsItsCompiles) {
  setenv("SPYRE_ATTN_RECORD", "0", 1);
  const Golden golden = golden_named("llama_mha16");
  RunnerHarness harness(SpyrePlatform(), config_for(golden, DType::kF16));
  unsetenv("SPYRE_ATTN_RECORD");
  harness.run({{.tokens = std::vector<int32_t>(200, 3), .blocks = harness.blocks_for(200)}});
  EXPECT_GT(runner_of(harness).compiles_after_ready(), 0);
}

// Per step, once each: ids, positions, slots, query and page tables, masks, and which rows give logits; back, the
// logits.
TEST(ModelRunner, AStepMovesItsTablesOnceAndTheLogits) {
  const Golden golden = golden_named("llama_gqa64");
  RunnerHarness harness(SpyrePlatform(), config_for(golden, DType::kF16));
  device::SoftwareDevice& device = runner_of(harness).device();
  const int64_t vocab = harness.model().vocab_size;
  device.transfers() = {};
  harness.run({{.tokens = {5, 6, 7}, .blocks = {1}}, {.tokens = {9}, .start = 0, .blocks = {2}}});
  const device::TransferCounters& moved = device.transfers();
  std::map<std::string, int64_t> in, out;
  for (const auto& [label, totals] : moved.to_device) in[label] = totals.count;
  for (const auto& [label, totals] : moved.to_host) out[label] = totals.count;
  EXPECT_EQ(in, (std::map<std::string, int64_t>{{"token_ids", 1},
                                                {"positions", 1},
                                                {"slots", 1},
                                                {"query_tables", 1},
                                                {"page_tables", 1},
                                                {"masks", 1},
                                                {"logits_rows", 1}}));
  EXPECT_EQ(out, (std::map<std::string, int64_t>{{"logits", 1}}));
  EXPECT_EQ(moved.to_host.at("logits").logical_bytes, 2 * vocab * 4);
  EXPECT_EQ(moved.to_device.at("token_ids").logical_bytes, 4 * 4);
}

// Sequences of their own lengths that decode together.
struct Together {
  RunnerHarness harness;
  std::vector<std::vector<int32_t>> tokens, blocks;

  Together(const EngineConfig& config, int64_t sequences, int64_t most)
      : harness(SpyrePlatform(), config, 1 + sequences * ((most + 127) / 128)) {
    std::mt19937 random(9);
    int32_t next = 1;
    for (int64_t i = 0; i < sequences; ++i) {
      const int64_t length = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most - 1));
      tokens.emplace_back();
      for (int64_t t = 0; t < length; ++t) tokens.back().push_back(static_cast<int32_t>(random() % 150));
      blocks.push_back(harness.blocks_for(most, next));
      next += static_cast<int32_t>(blocks.back().size());
      if (length > 1) harness.run({{.tokens = {tokens[i].begin(), tokens[i].end() - 1}, .blocks = blocks[i]}});
    }
  }
  // The last token of the sequence, its keys in the cache.
  Piece piece(int64_t i) const {
    return {.tokens = {tokens[i].back()}, .start = std::ssize(tokens[i]) - 1, .blocks = blocks[i]};
  }
};

// A sequence does not know its neighbours: decoding in a batch of any size gives the bits it has alone.
TEST_P(BitEqual, OverBatchesOfDecodes) {
  const Golden golden = golden_named("llama_gqa64");
  EngineConfig config = config_for(golden, GetParam().dtype);
  config.order = GetParam().order;
  config.max_num_seqs = 40;
  Together step(config, 37, 300);
  Rows alone;
  for (int64_t i = 0; i < 37; ++i) alone.push_back(step.harness.run({step.piece(i)}).at(0));
  for (const int64_t count : {37, 16, 5, 3}) {
    std::vector<Piece> pieces;
    Rows want;
    for (int64_t i = 37 - count; i < 37; ++i) {
      pieces.push_back(step.piece(i));
      want.push_back(alone[static_cast<size_t>(i)]);
    }
    expect_equal(step.harness.run(pieces), want, fmt::format("{} together", count));
  }
  EXPECT_EQ(runner_of(step.harness).compiles_after_ready(), 0);
}

// A step's rows are computed on the card in the smallest bucket that holds them; the warm-up's are not counted.
TEST(ModelRunner, CountsLiveRowsAndPadding) {
  const Golden golden = golden_named("llama_mha16");
  EngineConfig config = config_for(golden, DType::kF16);
  config.max_num_batched_tokens = 64;
  config.max_num_seqs = 8;
  config.token_buckets = {8, 24, 64};
  RunnerHarness harness(SpyrePlatform(), config);
  const auto counted = [&](const char* part) { return runner_of(harness).report("rows").at(part); };
  const nlohmann::json none = {{"live", 0}, {"padding", 0}};
  EXPECT_EQ(counted("body"), none);
  EXPECT_EQ(counted("head"), none);
  const std::vector<int32_t> blocks = harness.blocks_for(64);
  harness.run({{.tokens = std::vector<int32_t>(24, 3), .blocks = blocks, .rows = Piece::Rows::kLast}});
  EXPECT_EQ(counted("body"), nlohmann::json({{"live", 24}, {"padding", 0}}));
  EXPECT_EQ(counted("head"), nlohmann::json({{"live", 1}, {"padding", 7}}));
  harness.run({{.tokens = std::vector<int32_t>(25, 3), .blocks = blocks, .rows = Piece::Rows::kAll}});
  EXPECT_EQ(counted("body"), nlohmann::json({{"live", 24 + 25}, {"padding", 64 - 25}}));
  EXPECT_EQ(counted("head"), nlohmann::json({{"live", 1 + 25}, {"padding", 7 + 64 - 25}}));
}

// The tables of a batched decode are of the grid's size, and counted though only a card would read all of them.
TEST(ModelRunner, ABatchedDecodeMovesTheTablesOfItsGrid) {
  const Golden golden = golden_named("llama_mha16");
  EngineConfig config = config_for(golden, DType::kF16);
  config.max_num_seqs = 40;
  std::map<std::string, int64_t> moved[2];
  for (const bool checked : {false, true}) {
    config.checked = checked;
    Together step(config, 33, 200);
    device::SoftwareDevice& device = runner_of(step.harness).device();
    device.transfers() = {};
    std::vector<Piece> pieces;
    for (int64_t i = 0; i < 33; ++i) pieces.push_back(step.piece(i));
    step.harness.run(pieces);
    for (const auto& [label, totals] : device.transfers().to_device) moved[checked][label] = totals.card_bytes;
  }
  EXPECT_EQ(moved[0], moved[1]);
  EXPECT_EQ(moved[0].at("query_tables"), 64 * 4);     // 40 lanes, in whole sticks
  EXPECT_EQ(moved[0].at("page_tables"), 2 * 64 * 4);  // 2 blocks of 40 lanes
  EXPECT_EQ(moved[0].at("grid_masks"), 2 * 64 * 4);
  EXPECT_EQ(moved[0].at("masks"), (3 + 33) * 128 * 2);  // one block of each sequence is seen in part
}

// A head-major cache is stored through an index per KV head, and its decodes run one by one: no grid is recorded, none
// is dispatched, and blocks are copied whole.
TEST(ModelRunner, AHeadMajorCacheHasAnIndexPerHeadAndNoBatchedDecode) {
  const Golden golden = golden_named("llama_gqa64");
  EngineConfig config = config_for(golden, DType::kF16);
  config.max_num_seqs = 8;
  const auto decode = [](Together& step) {
    std::vector<Piece> pieces;
    for (int64_t i = 0; i < 6; ++i) pieces.push_back(step.piece(i));
    return step.harness.run(pieces);
  };
  Together token_major(config, 6, 200);
  const Rows want = decode(token_major);
  EXPECT_FALSE(token_major.harness.runner().report("buckets").at("batched_decode_variants").empty());
  std::map<std::string, int64_t> moved[2];
  setenv("SPYRE_ATTN_KV_LAYOUT", "head_major", 1);
  for (const bool checked : {false, true}) {
    config.checked = checked;
    Together step(config, 6, 200);
    device::SoftwareDevice& device = runner_of(step.harness).device();
    // Piece 0 reads copies of its blocks.
    const std::vector<int32_t> own = step.blocks[0], spare = step.blocks[5];
    for (size_t b = 0; b < own.size(); ++b) step.harness.runner().copy_block(own[b], spare[b]);
    step.blocks[0] = spare;
    step.blocks[5] = own;
    device.transfers() = {};
    const Rows rows = decode(step);
    for (size_t i = 0; i < 5; ++i) ASSERT_TRUE(equal_bits(rows[i], want[i])) << "sequence " << i;
    EXPECT_TRUE(step.harness.runner().report("buckets").at("batched_decode_variants").empty());
    EXPECT_EQ(device.transfers().to_device.count("grid_masks"), 0u);
    for (const auto& [label, totals] : device.transfers().to_device) moved[checked][label] = totals.count;
    EXPECT_EQ(runner_of(step.harness).compiles_after_ready(), 0);
  }
  unsetenv("SPYRE_ATTN_KV_LAYOUT");
  EXPECT_EQ(moved[0], moved[1]);
  EXPECT_EQ(moved[0].at("kv_rows"), token_major.harness.model().num_key_value_heads);
}

// The account of the scratchpad: every buffer has a verdict, what is resident lies within the budget, and saves what it
// says; attention is shown in both layouts, whichever the model has.
TEST(ModelRunner, AccountsForTheScratchpad) {
  const Golden golden = golden_named("llama_gqa64");
  RunnerHarness harness(SpyrePlatform(), config_for(golden, DType::kF16));
  const nlohmann::json lx = harness.runner().report("lx");
  const int64_t budget = lx.at("bytes_per_core");
  EXPECT_EQ(budget, 1'625'344);
  int64_t resident = 0, blocks = 0;
  for (const auto& [name, program] : lx.at("programs").items()) {
    blocks += program.at("graph").get<std::string>().ends_with("DecoderLayer");
    EXPECT_LE(program.at("resident"), program.at("candidates")) << name;
    EXPECT_LE(program.at("saved_bytes"), program.at("device_memory_bytes")) << name;
    int64_t found = 0;
    for (const nlohmann::json& buffer : program.at("buffers")) {
      EXPECT_NE(buffer.at("verdict"), "not planned") << name;
      if (!buffer.contains("address")) continue;
      ++found;
      EXPECT_LE(buffer.at("address").get<int64_t>() + buffer.at("bytes_per_core").get<int64_t>(),
                program.at("peak_bytes_per_core").get<int64_t>());
    }
    EXPECT_EQ(found, program.at("resident")) << name;
    EXPECT_LE(program.at("peak_bytes_per_core"), budget) << name;
    resident += found;
  }
  EXPECT_GE(blocks, 2);  // of the smallest and of the largest bucket
  EXPECT_GT(resident, 0);
  std::map<std::string, int64_t> traffic;  // of a decode
  for (const nlohmann::json& entry : lx.at("attention")) {
    if (entry.at("query") == 1 && entry.at("sequences") == 0 && !entry.at("restickify_reads_lx")) {
      traffic.emplace(entry.at("layout"), entry.at("page_traffic_bytes"));
      for (const char* rule : {"L-13", "L-14", "L-15", "L-19"})
        EXPECT_GT(entry.at("rules_met").value(rule, 0), 0) << rule;
    }
  }
  EXPECT_GT(traffic.at("token_major"), 2 * traffic.at("head_major"));
  EXPECT_EQ(lx.at("kv_layout"), "token_major");
}

// SPYRE_COMPILE_GRANULARITY=model: the body is one program per bucket, with the same bits.
TEST(ModelRunner, AWholeModelIsOneUnit) {
  const Golden golden = golden_named("llama_gqa64");
  const std::vector<int32_t> tokens(70, 5);
  RunnerHarness by_block(SpyrePlatform(), config_for(golden, DType::kF16));
  const Rows want = by_block.prefill(tokens, {64, 6}, by_block.blocks_for(std::ssize(tokens)));
  setenv("SPYRE_COMPILE_GRANULARITY", "model", 1);
  RunnerHarness whole(SpyrePlatform(), config_for(golden, DType::kF16));
  unsetenv("SPYRE_COMPILE_GRANULARITY");
  expect_equal(whole.prefill(tokens, {64, 6}, whole.blocks_for(std::ssize(tokens))), want, "one unit");
  EXPECT_FALSE(by_block.runner().report("artifacts").at("block_graphs_per_bucket").empty());
  EXPECT_TRUE(whole.runner().report("artifacts").at("block_graphs_per_bucket").empty());
  EXPECT_EQ(runner_of(whole).compiles_after_ready(), 0);
}

// A model whose attention is in no list of blocks: layers as members, as of a tower that is attached to something.
class Tower final : public nn::CausalLM {
 public:
  Tower() : nn::CausalLM("Tower", "") {
    attention_ = child(std::make_unique<nn::Attention>(
        nn::Attention::Options{.path = "attn", .heads = 2, .kv_heads = 1, .head_size = 64}));
  }
  nn::Value forward(nn::Tracer& t) const override { return t.token_ids(); }
  nn::Value compute_logits(nn::Tracer&, nn::Value hidden) const override { return hidden; }
  int64_t vocab_size() const override { return 8; }
  int64_t hidden_size() const override { return 64; }

 private:
  std::unique_ptr<nn::Attention> attention_;
};

// What |make| logs.
template <typename Make>
std::string logged(Make&& make) {
  std::ostringstream text;
  auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(text);
  log().sinks().push_back(sink);
  make();
  log().sinks().pop_back();
  return text.str();
}

TEST(ModelRunner, SaysWhenNoListOfBlocksIsFound) {
  const Golden golden = golden_named("llama_gqa64");
  EngineConfig config = config_for(golden, DType::kF16);
  SpyrePlatform().check_and_update_config(config, formats::Checkpoint::open(golden.model)->config());
  const auto runner = [&](bool whole_model) {
    plugin::Settings settings;
    settings.whole_model = whole_model;
    const SpyreModelRunner made(config, settings, nullptr, std::make_unique<Tower>());
    EXPECT_EQ(made.report("artifacts").at("granularity"), "model");
  };
  EXPECT_THAT(logged([&] { runner(false); }),
              ::testing::HasSubstr("Tower has no list of blocks: it is compiled as one"));
  EXPECT_EQ(logged([&] { runner(true); }), "") << "it was asked for";
  EXPECT_EQ(logged([&] { RunnerHarness harness(SpyrePlatform(), config_for(golden, DType::kF16)); }), "");
}

// --enforce-eager: every operator is a program of its own, with the same bits; on the card's extents too, since what
// two programs share is padded alike (heads of 16, 48 and 96, widths that are no sticks, norms of heads).
TEST(ModelRunner, EagerRunsOperatorByOperatorWithTheSameBits) {
  const std::vector<int32_t> tokens(70, 5);
  for (const char* name : {"llama_gqa64", "llama_odd", "llama_head96", "qwen2_gqa64", "qwen3_gqa48", "granite_gqa64"}) {
    const Golden golden = golden_named(name);
    const auto rows = [&](bool eager, bool checked) {
      EngineConfig config = config_for(golden, DType::kF16);
      config.enforce_eager = eager;
      config.checked = checked;
      return logits_of(config, tokens, {64, 6});
    };
    const Rows want = rows(false, false);
    expect_equal(rows(true, false), want, std::string(name) + " eager");
    expect_equal(rows(true, true), want, std::string(name) + " eager, checked");
  }
}

TEST(ModelRunner, EagerProgramsAreSharedOverLayersAndBuckets) {
  const Golden golden = golden_named("llama_gqa64");
  EngineConfig config = config_for(golden, DType::kF16);
  config.token_buckets = std::vector<int64_t>{8, 512};
  RunnerHarness by_block(SpyrePlatform(), config);
  config.enforce_eager = true;
  RunnerHarness eager(SpyrePlatform(), config);
  const nlohmann::json blocks = by_block.runner().report("artifacts"), ops = eager.runner().report("artifacts");
  EXPECT_EQ(blocks.at("granularity"), "block");
  EXPECT_EQ(ops.at("granularity"), "eager");
  const int64_t layers = eager.model().num_hidden_layers;
  // A layer: two norms with their additions, four products, two rotations, the store, attention, and the MLP's two.
  EXPECT_GE(ops.at("body_launches").get<int64_t>(), 12 * layers);
  EXPECT_EQ(blocks.at("body_launches"), layers + 2) << "embedding and rotations, blocks, the last norm";
  EXPECT_LT(ops.at("block_graphs_per_bucket").at("LlamaDecoderLayer").at("8").get<int64_t>(), 20)
      << "whatever the depth";
  EXPECT_EQ(ops.at("attention_variants"), 1) << "eager records nothing: warm-up ran this one";
  EXPECT_GT(blocks.at("attention_variants"), 1);
}

// A tap sees the results of blocks, not what is between their operators.
TEST(ModelRunner, EagerTapsWhatBlocksGive) {
  const Golden golden = golden_named("llama_gqa64");
  std::map<std::string, std::vector<float>> seen[2];
  for (const bool eager : {false, true}) {
    EngineConfig config = config_for(golden, DType::kF16);
    config.enforce_eager = eager;
    RunnerHarness harness(SpyrePlatform(), config);
    harness.runner().set_layer_tap([&](const runner::LayerOutput& o) {
      const std::string place = fmt::format("{} {} {}x{}", o.layer, o.output, o.rows, o.width);
      EXPECT_TRUE(seen[eager].emplace(place, std::vector<float>(o.values.begin(), o.values.end())).second) << place;
    });
    harness.prefill(std::vector<int32_t>(5, 7), {5}, harness.blocks_for(5));
  }
  EXPECT_EQ(seen[false], seen[true]);
}

// What `inspect --passes` and `--dump-after` print.
TEST(ModelRunner, ReportsWhatEachPassDid) {
  const Golden golden = golden_named("llama_gqa64");
  RunnerHarness harness(SpyrePlatform(), config_for(golden, DType::kF16));
  const nlohmann::json passes = harness.runner().report("passes");
  std::map<std::string, nlohmann::json> by_name;
  for (const nlohmann::json& pass : passes) by_name[pass.at("pass")] = pass;
  EXPECT_EQ(passes.size(), compiler::Compiler::pass_names().size());
  EXPECT_EQ(by_name.at("verify-rules").at("programs_changed"), harness.runner().report("artifacts").at("total"));
  EXPECT_GT(by_name.at("lower-operators").at("ms"), 0);
  const nlohmann::json dump = harness.runner().report("dump/divide-work");
  ASSERT_FALSE(dump.empty());
  EXPECT_NE(dump[0].at("text").get<std::string>().find("operations:"), std::string::npos);
  EXPECT_THROW(harness.runner().report("dump/no-such-pass"), Error);
}

// Two distinct block graphs per token bucket (the first layer has no residual), whatever the depth.
TEST(ModelRunner, BlockArtifactsDoNotGrowWithDepth) {
  for (int layers : {2, 8, 40}) {
    const std::string text = fmt::format(
        R"({{"architectures": ["LlamaForCausalLM"], "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": {},
             "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 256,
             "rms_norm_eps": 1e-5, "torch_dtype": "float16", "tie_word_embeddings": true}})",
        layers);
    const formats::ModelConfig model = formats::parse_model_config(text, "", "config.json", "");
    EngineConfig config;
    const SpyrePlatform platform;
    platform.check_and_update_config(config, model);
    const std::unique_ptr<nn::CausalLM> built = platform::build_model(platform, config, model);
    compiler::Compiler compiler({.features = CpuFeatures::of(CpuLevel::kPortable)});
    for (int64_t bucket : {1, 64}) {
      nn::Tracer tracer(bucket, nn::find_blocks(*built));
      const nn::Trace trace = tracer.finish({built->forward(tracer)});
      std::set<const device::Program*> blocks;
      int64_t calls = 0;
      for (const nn::Segment& segment : trace.segments) {
        if (segment.block == nullptr) continue;
        ++calls;
        blocks.insert(compiler.compile(segment.graph).get());
      }
      EXPECT_EQ(calls, layers);
      EXPECT_EQ(blocks.size(), 2u) << layers << " layers, bucket " << bucket;
    }
    EXPECT_EQ(compiler.artifacts(), 4);
  }
}

// The head's panels serve the embedding of a tied model: its values are held once.
TEST(ModelRunner, TiedWeightsAreHeldOnce) {
  const Golden tied = golden_named("llama_gqa64");
  RunnerHarness harness(SpyrePlatform(), config_for(tied, DType::kF16));
  const nlohmann::json memory = harness.runner().report("memory");
  const formats::ModelConfig& c = harness.model();
  ASSERT_TRUE(c.tie_word_embeddings);
  const int64_t table = c.vocab_size * c.hidden_size * 2;
  const int64_t layers =
      c.num_hidden_layers *
      (c.hidden_size * (c.num_attention_heads + 2 * c.num_key_value_heads) * c.head_dim +
       c.num_attention_heads * c.head_dim * c.hidden_size + 3 * c.hidden_size * c.intermediate_size) *
      2;
  // Panels round columns up to 64; norms and the rotation table are small beside that.
  const int64_t rotation = 512 * 2 * c.head_dim * 2;
  EXPECT_LT(memory.at("host_weight_bytes").get<int64_t>(),
            1.25 * static_cast<double>(table + layers) + rotation + 100000);
}

// A cache made anew takes the place of the old one: nothing of it stays on the device.
TEST(ModelRunner, ANewCacheReplacesTheOldOne) {
  const Golden golden = golden_named("llama_mha16");
  RunnerHarness harness(SpyrePlatform(), config_for(golden, DType::kF16));
  const auto used = [&] { return runner_of(harness).device().memory().used_by_label(); };
  const std::vector<int32_t> blocks = harness.blocks_for(3);
  const auto before = harness.run({{.tokens = {5, 6, 7}, .blocks = blocks}});
  const std::map<std::string, int64_t> first = used();
  for (int i = 0; i < 2; ++i) {
    harness.runner().initialize_kv_cache(harness.num_blocks());
    harness.runner().warm_up();
    expect_equal(harness.run({{.tokens = {5, 6, 7}, .blocks = blocks}}), before, "after a new cache");
    EXPECT_EQ(used(), first);
  }
  EXPECT_EQ(runner_of(harness).compiles_after_ready(), 0);
}

}  // namespace
}  // namespace spyre::worker
