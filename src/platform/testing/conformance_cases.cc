// The cases of the conformance suite. Each starts from a fresh platform and reports by expectations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "formats/safetensors.h"
#include "platform/instance.h"
#include "platform/testing/conformance.h"
#include "platform/testing/golden.h"
#include "platform/testing/runner_harness.h"
#include "runner/testing/steps.h"

namespace spyre::platform::testing {
namespace {

namespace fs = std::filesystem;
using runner::testing::StepBuilder;
using Rows = std::vector<std::vector<float>>;

constexpr int32_t kPoisoned = 5;  // the id whose embedding is NaN in the poisoned copy of the model
constexpr int64_t kModelLength = 512;

fs::path model_folder() {
  return fs::path(SPYRE_GOLDEN_DATA) / "llama_mha16";
}

EngineConfig on_tiny_model(EngineConfig config) {
  config.model = model_folder();
  if (!config.max_model_len) config.max_model_len = 256;
  return config;
}

// A folder of its own that is removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "spyre_conformance_XXXXXX").string();
    SPYRE_CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

nlohmann::json model_config() {
  return nlohmann::json::parse(read_file(model_folder() / "config.json", 1 << 20));
}

// The tiny model with the embedding of one id replaced by NaN: whoever reads that id goes bad, nobody else.
void write_poisoned_model(const fs::path& folder) {
  write_file(folder / "config.json", model_config().dump());
  std::string bytes = read_file(model_folder() / "model.safetensors", 16 << 20);
  const auto file = formats::SafetensorsFile::open(model_folder() / "model.safetensors");
  const formats::SafetensorsTensor* table = file->find("model.embed_tokens.weight");
  SPYRE_CHECK(table != nullptr && table->dtype == DType::kF32);
  const int64_t width = table->shape[1];
  const std::vector<float> row(width, std::numeric_limits<float>::quiet_NaN());
  std::memcpy(bytes.data() + table->offset + kPoisoned * width * sizeof(float), row.data(), width * sizeof(float));
  write_file(folder / "model.safetensors", bytes);
}

std::vector<int32_t> random_tokens(uint64_t seed, int64_t count) {
  std::mt19937_64 engine(seed);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = 6 + static_cast<int32_t>(engine() % 250);  // the poisoned id is not among them
  return tokens;
}

// Every field, so that a changed one shows.
std::string text_of(const EngineConfig& c) {
  const auto shown = [](const auto& field) { return field ? fmt::format("{}", *field) : std::string("-"); };
  std::string buckets = "-";
  if (c.token_buckets) {
    buckets.clear();
    for (const int64_t bucket : *c.token_buckets) buckets += fmt::format("{},", bucket);
  }
  return fmt::format(
      "{} {} {} dtype={} len={} block={} seqs={} step={} blocks={} bytes={} share={} serving={} buckets={} eager={} "
      "order={} "
      "threads={} checked={} numerics={} dp={} pp={} tp={}",
      c.model.string(), c.platform, static_cast<int>(c.preset), c.dtype ? to_string(*c.dtype) : "-",
      shown(c.max_model_len), shown(c.block_size), shown(c.max_num_seqs), shown(c.max_num_batched_tokens),
      shown(c.num_kv_blocks), shown(c.kv_cache_bytes), shown(c.memory_utilization), c.serving, buckets, c.enforce_eager,
      c.order, c.threads, c.checked, c.numerics, c.data_parallel_size, c.pipeline_parallel_size,
      c.tensor_parallel_size);
}

// |call| must throw an Error of one of |codes| whose message holds all of |parts|.
void expect_error(const std::function<void()>& call, std::vector<ErrorCode> codes,
                  const std::vector<std::string>& parts) {
  try {
    call();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(std::find(codes.begin(), codes.end(), error.code()), codes.end())
        << to_string(error.code()) << ": " << message;
    for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

void expect_equal(const Rows& a, const Rows& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) ASSERT_TRUE(equal_bits(a[i], b[i])) << what << ": row " << i << " differs";
}

void expect_finite(const Rows& rows) {
  for (const std::vector<float>& row : rows) {
    ASSERT_TRUE(std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); }));
  }
}

// --- config ---

void config_is_idempotent(const Platform& platform, const EngineConfig& base) {
  EngineConfig config = on_tiny_model(base);
  const auto checkpoint = formats::Checkpoint::open(config.model);
  platform.check_and_update_config(config, checkpoint->config());
  EXPECT_TRUE(config.dtype && config.max_model_len && config.block_size && config.max_num_seqs &&
              config.max_num_batched_tokens)
      << text_of(config);
  const std::string once = text_of(config);
  platform.check_and_update_config(config, checkpoint->config());
  EXPECT_EQ(text_of(config), once);
}

void config_keeps_what_is_given(const Platform& platform, const EngineConfig& base) {
  EngineConfig config = on_tiny_model(base);
  config.max_model_len = 200;
  config.max_num_seqs = 3;
  config.max_num_batched_tokens = 96;
  config.block_size = 128;
  const auto checkpoint = formats::Checkpoint::open(config.model);
  platform.check_and_update_config(config, checkpoint->config());
  EXPECT_EQ(config.max_model_len, 200);
  EXPECT_EQ(config.max_num_seqs, 3);
  EXPECT_EQ(config.max_num_batched_tokens, 96);
  EXPECT_EQ(config.block_size, 128);
}

void config_derives_the_models_length(const Platform& platform, const EngineConfig& base) {
  EngineConfig config = on_tiny_model(base);
  config.max_model_len.reset();
  const auto checkpoint = formats::Checkpoint::open(config.model);
  platform.check_and_update_config(config, checkpoint->config());
  EXPECT_EQ(config.max_model_len, kModelLength);
}

void config_refuses_by_number(const Platform& platform, const EngineConfig& base) {
  const auto checkpoint = formats::Checkpoint::open(model_folder());
  const auto refuses = [&](const std::function<void(EngineConfig&)>& spoil, const std::vector<std::string>& parts) {
    EngineConfig config = on_tiny_model(base);
    spoil(config);
    expect_error([&] { platform.check_and_update_config(config, checkpoint->config()); },
                 {ErrorCode::kInvalidArgument, ErrorCode::kUnsupported}, parts);
  };
  refuses([](auto& c) { c.max_model_len = kModelLength + 1; }, {"max_model_len", "513", "512"});
  refuses([](auto& c) { c.max_model_len = 0; }, {"max_model_len", "0"});
  refuses([](auto& c) { c.max_num_seqs = -3; }, {"max_num_seqs", "-3"});
  refuses([](auto& c) { c.max_num_batched_tokens = 0; }, {"max_num_batched_tokens", "0"});
  refuses([](auto& c) { c.block_size = 0; }, {"block_size", "0"});
  refuses([](auto& c) { c.threads = -2; }, {"threads", "-2"});
  refuses([](auto& c) { c.order = "sideways"; }, {"sideways"});
  refuses([](auto& c) { c.dtype = DType::kI8; }, {"dtype", "i8"});
  refuses([](auto& c) { c.data_parallel_size = 2; }, {"data_parallel_size", "2"});
  refuses([](auto& c) { c.pipeline_parallel_size = 4; }, {"pipeline_parallel_size", "4"});
}

// --- loading ---

void load_reports_progress(const Platform& platform, const EngineConfig& base) {
  int64_t calls = 0, last = 0, total = 0;
  const Instance instance = make_instance(platform, on_tiny_model(base), [&](const runner::LoadProgress& progress) {
    EXPECT_GE(progress.bytes_done, last);
    EXPECT_LE(progress.bytes_done, progress.bytes_total);
    last = progress.bytes_done;
    total = progress.bytes_total;
    ++calls;
  });
  EXPECT_GT(calls, 1);
  EXPECT_EQ(last, total);
}

void unknown_architecture_is_refused(const Platform& platform, const EngineConfig& base) {
  const TemporaryFolder folder;
  nlohmann::json json = model_config();
  json["architectures"] = {"OracleForCausalLM"};
  write_file(folder.path() / "config.json", json.dump());
  fs::copy_file(model_folder() / "model.safetensors", folder.path() / "model.safetensors");
  EngineConfig config = on_tiny_model(base);
  config.model = folder.path();
  expect_error([&] { make_instance(platform, config); }, {ErrorCode::kUnsupported},
               {"OracleForCausalLM", "LlamaForCausalLM"});
}

void unbuilt_config_key_is_refused(const Platform& platform, const EngineConfig& base) {
  const TemporaryFolder folder;
  nlohmann::json json = model_config();
  json["residual_multiplier"] = 0.22;
  write_file(folder.path() / "config.json", json.dump());
  fs::copy_file(model_folder() / "model.safetensors", folder.path() / "model.safetensors");
  EngineConfig config = on_tiny_model(base);
  config.model = folder.path();
  expect_error([&] { make_instance(platform, config); }, {ErrorCode::kUnsupported}, {"residual_multiplier", "0.22"});
}

void missing_tensor_is_named(const Platform& platform, const EngineConfig& base) {
  const TemporaryFolder folder;
  nlohmann::json json = model_config();
  json["num_hidden_layers"] = 3;  // the file has 2
  write_file(folder.path() / "config.json", json.dump());
  fs::copy_file(model_folder() / "model.safetensors", folder.path() / "model.safetensors");
  EngineConfig config = on_tiny_model(base);
  config.model = folder.path();
  expect_error([&] { make_instance(platform, config); }, {ErrorCode::kNotFound}, {"model.layers.2."});
}

// --- KV cache ---

void kv_cache_is_accounted_for(const Platform& platform, const EngineConfig& base) {
  RunnerHarness harness(platform, on_tiny_model(base), 5);
  const runner::KvCacheSpec& spec = harness.spec();
  EXPECT_EQ(spec.block_size, harness.config().block_size);
  EXPECT_EQ(spec.num_groups, 1);
  const formats::ModelConfig& model = harness.model();
  const int64_t least = 2 * model.num_hidden_layers * model.num_key_value_heads * model.head_dim * spec.block_size *
                        static_cast<int64_t>(size_of(*harness.config().dtype));
  EXPECT_GE(spec.bytes_per_block, least);       // padding is allowed
  EXPECT_LE(spec.bytes_per_block, 16 * least);  // heads of 16 on a card of 128
  EXPECT_EQ(spec.bytes_per_block % spec.block_size, 0);
  // Asking again changes nothing.
  const runner::KvCacheSpec again = harness.runner().kv_cache_spec();
  EXPECT_EQ(again.bytes_per_block, spec.bytes_per_block);
}

void absurd_kv_cache_is_refused(const Platform& platform, const EngineConfig& base) {
  RunnerHarness harness(platform, on_tiny_model(base));
  const std::vector<int32_t> tokens = random_tokens(1, 20);
  const Rows before = harness.prefill(tokens, {20}, harness.blocks_for(20));
  for (const int64_t blocks : {int64_t{1} << 30, int64_t{1} << 50, std::numeric_limits<int64_t>::max()}) {
    expect_error([&] { harness.runner().initialize_kv_cache(blocks); }, {ErrorCode::kResourceExhausted},
                 {std::to_string(blocks)});
  }
  harness.runner().initialize_kv_cache(harness.num_blocks());
  harness.runner().warm_up();
  expect_equal(harness.prefill(tokens, {20}, harness.blocks_for(20)), before, "after a refused cache");
}

void copied_block_reads_the_same(const Platform& platform, const EngineConfig& base) {
  RunnerHarness harness(platform, on_tiny_model(base), 8);
  const int64_t size = harness.spec().block_size;
  const std::vector<int32_t> tokens = random_tokens(2, size);
  harness.prefill(tokens, {size}, {1});
  const Rows want = harness.run({{.tokens = {9}, .start = size, .blocks = {1, 2}}});
  harness.prefill(random_tokens(3, size), {size}, {4});
  harness.runner().copy_block(1, 4);
  harness.runner().zero_block(1);
  expect_equal(harness.run({{.tokens = {9}, .start = size, .blocks = {4, 5}}}), want, "a copied block");
}

void zeroed_block_forgets(const Platform& platform, const EngineConfig& base) {
  RunnerHarness harness(platform, on_tiny_model(base), 8);
  const int64_t size = harness.spec().block_size;
  Rows first;
  for (const uint64_t seed : {4, 5}) {
    harness.prefill(random_tokens(seed, size), {size}, {3});
    const Rows full = harness.run({{.tokens = {9}, .start = size, .blocks = {3, 2}}});
    harness.runner().zero_block(3);
    const Rows empty = harness.run({{.tokens = {9}, .start = size, .blocks = {3, 2}}});
    expect_finite(empty);
    EXPECT_FALSE(equal_bits(full[0], empty[0])) << "zeroing changed nothing";
    if (first.empty()) first = empty;
    expect_equal(empty, first, "a zeroed block");
  }
}

// --- forward ---

void forward_is_deterministic(const Platform& platform, const EngineConfig& base) {
  RunnerHarness harness(platform, on_tiny_model(base)), other(platform, on_tiny_model(base));
  const std::vector<int32_t> tokens = random_tokens(6, 70);
  const Rows want = harness.prefill(tokens, {70}, harness.blocks_for(70));
  expect_finite(want);
  expect_equal(harness.prefill(tokens, {70}, harness.blocks_for(70)), want, "a second run");
  expect_equal(other.prefill(tokens, {70}, other.blocks_for(70)), want, "a second runner");
}

void chunks_do_not_change_bits(const Platform& platform, const EngineConfig& base) {
  RunnerHarness harness(platform, on_tiny_model(base));
  const std::vector<int32_t> tokens = random_tokens(7, 150);
  const std::vector<int32_t> blocks = harness.blocks_for(150);
  const Rows want = harness.prefill(tokens, {150}, blocks);
  std::mt19937_64 engine(8);
  for (int round = 0; round < 4; ++round) {
    std::vector<int64_t> chunks;
    std::string text;
    for (int i = 0; i < 30; ++i) {
      chunks.push_back(1 + static_cast<int64_t>(engine() % (round == 0 ? 5 : 64)));
      text += fmt::format("{} ", chunks.back());
    }
    expect_equal(harness.prefill(tokens, chunks, blocks), want, "chunks " + text);
  }
  expect_equal(harness.prefill(tokens, {1}, blocks), want, "one token at a time");
}

void neighbours_do_not_change_bits(const Platform& platform, const EngineConfig& base) {
  RunnerHarness harness(platform, on_tiny_model(base), 40);
  const int64_t size = harness.spec().block_size;
  const std::vector<int32_t> tokens = random_tokens(9, 30), one = random_tokens(10, 25), two = random_tokens(11, 3);
  const auto piece = [](std::vector<int32_t> of, int64_t start, std::vector<int32_t> blocks) {
    return Piece{.tokens = std::move(of), .start = start, .blocks = std::move(blocks)};
  };
  const auto blocks = [&](int32_t first) { return harness.blocks_for(std::max<int64_t>(40, size + 1), first); };
  const Rows alone = harness.run({piece(tokens, 0, blocks(1))});
  const Rows alone_next = harness.run({piece({7}, 30, blocks(1))});
  const Rows mixed = harness.run({piece(one, 0, blocks(10)), piece(tokens, 0, blocks(20)), piece(two, 0, blocks(30))});
  ASSERT_EQ(mixed.size(), 3u);
  EXPECT_TRUE(equal_bits(mixed[1], alone[0])) << "in the middle of a prefill batch";
  const Rows next = harness.run({piece({8}, 25, blocks(10)), piece({7}, 30, blocks(20)), piece({6}, 3, blocks(30))});
  EXPECT_TRUE(equal_bits(next.at(1), alone_next[0])) << "in the middle of a decode batch";
}

void pages_do_not_change_bits(const Platform& platform, const EngineConfig& base) {
  RunnerHarness harness(platform, on_tiny_model(base), 120);
  const std::vector<int32_t> tokens = random_tokens(12, 140);
  const Rows want = harness.prefill(tokens, {140}, harness.blocks_for(140));
  std::vector<int32_t> scattered = harness.blocks_for(140);
  for (size_t i = 0; i < scattered.size(); ++i) scattered[i] = static_cast<int32_t>(119 - 3 * i);
  expect_equal(harness.prefill(tokens, {140}, scattered), want, "scattered pages");
}

void strangers_nan_does_not_leak(const Platform& platform, const EngineConfig& base) {
  const TemporaryFolder folder;
  write_poisoned_model(folder.path());
  EngineConfig config = on_tiny_model(base);
  config.model = folder.path();
  RunnerHarness harness(platform, config, 6);
  const int64_t size = harness.spec().block_size;
  const std::vector<int32_t> tokens = random_tokens(13, size + 3);  // the second block is only begun
  const Rows want = harness.prefill(tokens, {size}, {1, 2});
  const Rows want_next = harness.run({{.tokens = {9}, .start = size + 3, .blocks = {1, 2}}});
  harness.run({{.tokens = std::vector<int32_t>(2 * size, kPoisoned), .start = 0, .blocks = {4, 3}}});
  EXPECT_FALSE(harness.last().row_errors.empty()) << "the stranger left no NaN: the case shows nothing";
  expect_equal(harness.prefill(tokens, {size}, {3, 4}), want, "pages full of NaN");
  expect_equal(harness.run({{.tokens = {9}, .start = size + 3, .blocks = {3, 4}}}), want_next, "pages full of NaN");
  expect_equal(harness.prefill(tokens, {11}, {4, 3}), want, "chunked, pages full of NaN");
}

void nonfinite_rows_are_named(const Platform& platform, const EngineConfig& base) {
  const TemporaryFolder folder;
  write_poisoned_model(folder.path());
  EngineConfig config = on_tiny_model(base);
  config.model = folder.path();
  RunnerHarness harness(platform, config, 40);
  const auto blocks = [&](int32_t first) { return harness.blocks_for(40, first); };
  const std::vector<int32_t> tokens = random_tokens(14, 12);
  const Rows want = harness.run({{.tokens = tokens, .start = 0, .blocks = blocks(1)}});
  EXPECT_TRUE(harness.last().row_errors.empty());
  const Rows mixed = harness.run({{.tokens = tokens, .start = 0, .blocks = blocks(1)},
                                  {.tokens = {9, 10, kPoisoned}, .start = 0, .blocks = blocks(20)}});
  EXPECT_TRUE(equal_bits(mixed.at(0), want[0])) << "the neighbour of a bad row";
  const auto& errors = harness.last().row_errors;
  ASSERT_FALSE(errors.empty());
  for (const auto& [row, message] : errors) {
    EXPECT_EQ(row, 14) << message;
    EXPECT_FALSE(message.empty());
  }
  harness.run({{.tokens = tokens, .start = 0, .blocks = blocks(1)}});
  EXPECT_TRUE(harness.last().row_errors.empty()) << "the error of an earlier step stays";
}

void only_wanted_rows_are_given(const Platform& platform, const EngineConfig& base) {
  RunnerHarness harness(platform, on_tiny_model(base));
  const std::vector<int32_t> tokens = random_tokens(15, 24), blocks = harness.blocks_for(40);
  const Rows all = harness.prefill(tokens, {24}, blocks);
  EXPECT_TRUE(harness.run({{.tokens = tokens, .start = 0, .blocks = blocks, .rows = Piece::Rows::kNone}}).empty());
  const Rows last = harness.run({{.tokens = tokens, .start = 0, .blocks = blocks}});
  ASSERT_EQ(last.size(), 1u);
  EXPECT_TRUE(equal_bits(last[0], all.back()));
  EXPECT_EQ(std::ssize(last[0]), harness.runner().vocab_size());
}

// --- through the worker ---

void worker_survives_bad_steps(const Platform& platform, const EngineConfig& base) {
  Instance instance = make_instance(platform, on_tiny_model(base));
  runner::Worker& worker = *instance.worker;
  const std::vector<int32_t> prompt = random_tokens(16, 10);
  const auto invalid = [&](const runner::Step& step, const std::vector<std::string>& parts) {
    expect_error([&] { worker.execute(step); }, {ErrorCode::kInvalidArgument}, parts);
  };
  const int64_t size = *instance.config.block_size;
  const auto last = static_cast<int32_t>(instance.num_kv_blocks);
  invalid(StepBuilder().start("a", {9, 257}, {1}, 2), {"a", "257"});
  invalid(StepBuilder().start("a", {9, -1}, {1}, 2), {"a", "-1"});
  invalid(StepBuilder().start("a", {9}, {last}, 1), {"a", std::to_string(last)});
  invalid(StepBuilder().start("a", random_tokens(1, size + 1), {1}, size + 1), {"a"});
  invalid(StepBuilder().start("a", random_tokens(1, *instance.config.max_model_len + 1), {1}, 1), {"a"});
  invalid(StepBuilder().go_on("nobody", 3, 1), {"nobody"});
  const std::vector<int32_t> drawn = greedy_ids(instance, prompt, 4, 10);
  Instance fresh = make_instance(platform, on_tiny_model(base));
  EXPECT_EQ(drawn, greedy_ids(fresh, prompt, 4, 3));
}

void requests_do_not_change_each_other(const Platform& platform, const EngineConfig& base) {
  EngineConfig config = on_tiny_model(base);
  config.num_kv_blocks = 40;
  Instance instance = make_instance(platform, config);
  runner::Worker& worker = *instance.worker;
  const std::vector<int32_t> one = random_tokens(17, 21), two = random_tokens(18, 14);
  const std::vector<int32_t> want_one = greedy_ids(instance, one, 5, 21), want_two = greedy_ids(instance, two, 5, 14);
  std::map<std::string, std::vector<int32_t>> drawn;
  const auto step = [&](const runner::Step& s) {
    for (const auto& request : worker.sample(worker.execute(s)).requests) {
      EXPECT_FALSE(request.error) << *request.error;
      auto& tokens = drawn[request.id];
      tokens.insert(tokens.end(), request.tokens.begin(), request.tokens.end());
    }
  };
  const auto blocks = [&](int32_t first) {
    std::vector<int32_t> ids((30 + *instance.config.block_size - 1) / *instance.config.block_size);
    std::iota(ids.begin(), ids.end(), first);
    return ids;
  };
  step(StepBuilder().start("one", one, blocks(1), 21).start("two", two, blocks(20), 14));
  for (int64_t i = 0; i < 4; ++i) step(StepBuilder().go_on("two", 14 + i, 1 + i).go_on("one", 21 + i, 1 + i));
  EXPECT_EQ(drawn["one"], want_one);
  EXPECT_EQ(drawn["two"], want_two);
}

void forward_needs_a_kv_cache(const Platform& platform, const EngineConfig& base) {
  EngineConfig config = on_tiny_model(base);
  const std::shared_ptr<const formats::Checkpoint> checkpoint = formats::Checkpoint::open(config.model);
  platform.check_and_update_config(config, checkpoint->config());
  const auto runner = platform.create_model_runner(config, checkpoint);
  runner->load_model([](const runner::LoadProgress&) {});
  const std::vector<int32_t> ids{9}, positions{0}, slots{*config.block_size <= 0 ? 0 : 1}, start{0, 1}, lengths{1},
      table{1}, rows{0};
  const runner::ForwardBatch batch{.token_ids = ids,
                                   .positions = positions,
                                   .slots = slots,
                                   .attention = {.block_size = *config.block_size,
                                                 .query_start = start,
                                                 .seq_lens = lengths,
                                                 .block_table = table,
                                                 .max_blocks = 1},
                                   .logits_rows = rows};
  runner::Logits logits;
  expect_error([&] { runner->forward(batch, logits); }, {ErrorCode::kFailedPrecondition}, {});
}

void reports_are_plain(const Platform& platform, const EngineConfig& base) {
  const Instance instance = make_instance(platform, on_tiny_model(base));
  EXPECT_TRUE(instance.worker->report("no such topic").is_null());
  EXPECT_TRUE(instance.worker->report("all").is_object());
  EXPECT_TRUE(instance.worker->report("memory").is_object());
  EXPECT_FALSE(instance.worker->report("all").dump().empty());
}

#define SPYRE_CASE(name) {#name, name}
constexpr ConformanceCase kCases[] = {
    SPYRE_CASE(config_is_idempotent),
    SPYRE_CASE(config_keeps_what_is_given),
    SPYRE_CASE(config_derives_the_models_length),
    SPYRE_CASE(config_refuses_by_number),
    SPYRE_CASE(load_reports_progress),
    SPYRE_CASE(unknown_architecture_is_refused),
    SPYRE_CASE(unbuilt_config_key_is_refused),
    SPYRE_CASE(missing_tensor_is_named),
    SPYRE_CASE(kv_cache_is_accounted_for),
    SPYRE_CASE(absurd_kv_cache_is_refused),
    SPYRE_CASE(copied_block_reads_the_same),
    SPYRE_CASE(zeroed_block_forgets),
    SPYRE_CASE(forward_is_deterministic),
    SPYRE_CASE(chunks_do_not_change_bits),
    SPYRE_CASE(neighbours_do_not_change_bits),
    SPYRE_CASE(pages_do_not_change_bits),
    SPYRE_CASE(strangers_nan_does_not_leak),
    SPYRE_CASE(nonfinite_rows_are_named),
    SPYRE_CASE(only_wanted_rows_are_given),
    SPYRE_CASE(worker_survives_bad_steps),
    SPYRE_CASE(requests_do_not_change_each_other),
    SPYRE_CASE(forward_needs_a_kv_cache),
    SPYRE_CASE(reports_are_plain),
};
#undef SPYRE_CASE

}  // namespace

std::span<const ConformanceCase> conformance_cases() {
  return kCases;
}

}  // namespace spyre::platform::testing
