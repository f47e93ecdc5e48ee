// Checks and defaults of the Spyre platform, by their numbers, and its environment variables.
#include "plugins/spyre/platform.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <utility>

#include "base/error.h"
#include "formats/checkpoint.h"
#include "formats/model_config.h"
#include "plugins/spyre/attention/buckets.h"
#include "plugins/spyre/settings.h"

namespace spyre::plugin {
namespace {

using platform::EngineConfig;
using platform::Preset;
using ::testing::HasSubstr;

formats::ModelConfig model(const std::string& dtype = "bfloat16", int64_t positions = 8192) {
  return formats::parse_model_config(
      fmt::format(R"({{"architectures": ["LlamaForCausalLM"], "hidden_size": 576, "intermediate_size": 1536,
          "num_hidden_layers": 2, "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
          "max_position_embeddings": {}, "rms_norm_eps": 1e-5, "torch_dtype": "{}"}})",
                  positions, dtype),
      "", "config.json", "");
}

EngineConfig checked(EngineConfig config, const formats::ModelConfig& m = model()) {
  SpyrePlatform().check_and_update_config(config, m);
  return config;
}

std::string refusal(const EngineConfig& config, const formats::ModelConfig& m = model()) {
  try {
    checked(config, m);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(SpyrePlatform, DefaultsServeTheUser) {
  const EngineConfig c = checked({});
  EXPECT_EQ(*c.dtype, DType::kBF16);  // the checkpoint's own 16-bit type
  EXPECT_EQ(*c.block_size, 128);
  EXPECT_EQ(*c.max_model_len, 8192);
  EXPECT_EQ(*c.max_num_batched_tokens, 512);
  EXPECT_EQ(*c.token_buckets, attention::fine_ladder(512));
  EXPECT_EQ(c.token_buckets->size(), 32u);
  EXPECT_GE(c.threads, 1);
  EXPECT_EQ(*checked({}, model("float32")).dtype, DType::kF16);
}

TEST(SpyrePlatform, ThePresetGivesTheOriginalsLimits) {
  const EngineConfig c = checked({.preset = Preset::kOriginal});
  EXPECT_EQ(*c.dtype, DType::kF16);
  EXPECT_EQ(*c.max_model_len, 2048);
  EXPECT_EQ(*c.max_num_seqs, 4);
  EXPECT_EQ(*c.token_buckets, (std::vector<int64_t>{1, 2, 4, 512}));
  // What the user gives stays.
  EXPECT_EQ(*checked({.preset = Preset::kOriginal, .max_model_len = 4096}).max_model_len, 4096);
  EXPECT_EQ(*checked({.preset = Preset::kOriginal, .max_num_seqs = 32}).max_num_seqs, 32);
  EXPECT_THAT(refusal({.preset = Preset::kOriginal, .dtype = DType::kBF16}), HasSubstr("needs to be float16"));
}

TEST(SpyrePlatform, RopeScalingStretchesWhatMayBeAskedFor) {
  formats::ModelConfig yarn = model("bfloat16", 32768);
  yarn.rope = {.type = "yarn", .factor = 4, .original_max_position = 16384};
  EXPECT_EQ(*checked({}, yarn).max_model_len, 32768);
  EXPECT_EQ(*checked({.max_model_len = 65536}, yarn).max_model_len, 65536);
  EXPECT_THAT(refusal({.max_model_len = 65537}, yarn), HasSubstr("the model's 65536 positions"));
  formats::ModelConfig linear = model();
  linear.rope = {.type = "linear", .factor = 2};
  EXPECT_EQ(*checked({.max_model_len = 16384}, linear).max_model_len, 16384);
}

TEST(SpyrePlatform, ThePresetRefusesNormsOfPaddedHeads) {
  const auto open = [](const char* name, Preset preset) -> std::string {
    const std::shared_ptr<const formats::Checkpoint> checkpoint =
        formats::Checkpoint::open(std::string(SPYRE_GOLDEN_DATA "/") + name);
    EngineConfig config{.preset = preset};
    try {
      SpyrePlatform platform;
      platform.check_and_update_config(config, checkpoint->config());
      (void)platform.create_model_runner(config, checkpoint);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(open("qwen3_gqa48", Preset::kOriginal),
              ::testing::AllOf(HasSubstr("q_norm.weight"), HasSubstr("heads of 48"), HasSubstr("pads to 128")));
  EXPECT_EQ(open("qwen3_gqa48", Preset::kOurs), "accepted");
  EXPECT_EQ(open("qwen3_gqa128", Preset::kOriginal), "accepted");
  EXPECT_EQ(open("qwen2_gqa64", Preset::kOriginal), "accepted");
}

TEST(SpyrePlatform, BlockSizeRoundsUpToSticks) {
  const std::pair<int64_t, int64_t> table[] = {{1, 64},    {16, 64},   {64, 64},  {65, 128},
                                               {100, 128}, {128, 128}, {192, 192}};
  for (const auto& [asked, given] : table) EXPECT_EQ(*checked({.block_size = asked}).block_size, given) << asked;
}

TEST(SpyrePlatform, RefusalsNameFieldAndNumber) {
  EXPECT_THAT(refusal({.dtype = DType::kF32}), HasSubstr("f32"));
  EXPECT_THAT(refusal({.max_model_len = 9000}), ::testing::AllOf(HasSubstr("9000"), HasSubstr("8192")));
  EXPECT_THAT(refusal({.max_model_len = 0}), HasSubstr("max_model_len is 0"));
  EXPECT_THAT(refusal({.block_size = -64}), HasSubstr("block_size is -64"));
  EXPECT_THAT(refusal({.kv_cache_bytes = -1}), HasSubstr("kv_cache_bytes is -1"));
  // Nothing overflows on the way to the refusal.
  const int64_t huge = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(refusal({.block_size = huge}), HasSubstr("block_size is 9223372036854775807"));
  EXPECT_THAT(refusal({.max_num_seqs = huge}), HasSubstr("max_num_seqs is 9223372036854775807"));
  EXPECT_THAT(refusal({.max_num_batched_tokens = huge}), HasSubstr("max_num_batched_tokens is 9223372036854775807"));
  EXPECT_THAT(refusal({.order = "zigzag"}), HasSubstr("zigzag"));
  EXPECT_THAT(refusal({.threads = 5000}), HasSubstr("5000"));
  EXPECT_THAT(refusal({.data_parallel_size = 2}), HasSubstr("data_parallel_size is 2"));
  EXPECT_THAT(refusal({.pipeline_parallel_size = 3}), HasSubstr("pipeline_parallel_size is 3"));
  EXPECT_THAT(refusal({.tensor_parallel_size = 4}), HasSubstr("tensor_parallel_size is 4"));
}

struct Variable {
  Variable(const char* name, const char* value) : name(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name); }
  const char* name;
};

std::string setting_refusal(const char* name, const char* value) {
  const Variable variable(name, value);
  return refusal({});
}

TEST(Settings, LaddersAreReadAndChecked) {
  {
    const Variable kv("SPYRE_ATTN_KV_BUCKETS", " 256 , 1024 "), query("SPYRE_ATTN_QUERY_BUCKETS", "1,64");
    const Settings s = Settings::from_environment();
    EXPECT_EQ(s.kv_buckets, (std::vector<int64_t>{256, 1024}));
    EXPECT_EQ(s.query_buckets, (std::vector<int64_t>{1, 64}));
  }
  for (const char* bad : {"0", "-5", "abc", "1,,2", "64,1e3", "99999999999999999999"}) {
    EXPECT_THAT(setting_refusal("SPYRE_ATTN_KV_BUCKETS", bad), HasSubstr("SPYRE_ATTN_KV_BUCKETS")) << bad;
  }
}

TEST(Settings, AttentionFollowsItsVariables) {
  const Settings initial = Settings::from_environment();
  EXPECT_EQ(initial.kv_layout, attention::KvLayout::kTokenMajor);
  EXPECT_FALSE(initial.attention_cores.has_value());
  const Variable layout("SPYRE_ATTN_KV_LAYOUT", "head_major"), cores("SPYRE_ATTN_MAX_CORES", "16");
  const Settings given = Settings::from_environment();
  EXPECT_EQ(given.kv_layout, attention::KvLayout::kHeadMajor);
  EXPECT_EQ(given.attention_cores, 16);
}

TEST(Settings, Dl16FollowsItsVariables) {
  EXPECT_EQ(Settings::from_environment().dl16, device::Dl16Settings{});
  const Variable ties("SPYRE_DL16_TIES", "odd"), subnormals("SPYRE_DL16_SUBNORMALS", "fixed"),
      top("SPYRE_DL16_TOP", "constants"), floor("SPYRE_DL16_EXP_FLOOR", "3e-5"), guard("SPYRE_DL16_EXP_GUARD", "0"),
      chunk("SPYRE_DL16_ACCUMULATE", "128");
  const device::Dl16Settings expected{
      .rules = {.ties = Dl16Ties::kOdd, .subnormals = Dl16Subnormals::kFixed, .top = Dl16Top::kConstants},
      .exp_floor = 3e-5f,
      .exp_guard = false,
      .accumulate_chunk = 128};
  EXPECT_EQ(Settings::from_environment().dl16, expected);
}

TEST(Settings, Dl16ValuesAreRefusedByName) {
  const std::pair<const char*, const char*> bad[] = {
      {"SPYRE_DL16_TIES", "up"},        {"SPYRE_DL16_SUBNORMALS", "halved"}, {"SPYRE_DL16_TOP", "65504"},
      {"SPYRE_DL16_EXP_FLOOR", "-1"},   {"SPYRE_DL16_EXP_FLOOR", "nan"},     {"SPYRE_DL16_EXP_FLOOR", "2^-24"},
      {"SPYRE_DL16_EXP_GUARD", "yes"},  {"SPYRE_DL16_ACCUMULATE", "0"},      {"SPYRE_DL16_ACCUMULATE", "dl16"},
      {"SPYRE_DL16_ACCUMULATE", "64k"}, {"SPYRE_DL16_ACCUMULATE", "65537"}};
  for (const auto& [name, value] : bad) EXPECT_THAT(setting_refusal(name, value), HasSubstr(name)) << value;
}

TEST(SpyrePlatform, NumericsAreOfTwoKinds) {
  EngineConfig config;
  config.numerics = "dl16";
  EXPECT_EQ(checked(config).numerics, "dl16");
  config.checked = true;
  EXPECT_THROW(checked(config), Error);
  config.checked = false;
  config.numerics = "fp8";
  EXPECT_THROW(checked(config), Error);
}

TEST(Settings, ChoicesAreRefusedByName) {
  EXPECT_THAT(setting_refusal("SPYRE_ATTN_RECORD", "yes"), HasSubstr("neither 0 nor 1"));
  EXPECT_THAT(setting_refusal("SPYRE_ATTN_KV_LAYOUT", "diagonal"),
              ::testing::AllOf(HasSubstr("SPYRE_ATTN_KV_LAYOUT='diagonal' is not a known value"),
                               HasSubstr("token_major, head_major")));
  for (const char* cores : {"0", "33", "-8", "8x", "eight"}) {
    EXPECT_THAT(setting_refusal("SPYRE_ATTN_MAX_CORES", cores), HasSubstr("SPYRE_ATTN_MAX_CORES")) << cores;
  }
  EXPECT_THAT(setting_refusal("SPYRE_COMPILE_GRANULARITY", "layer"), HasSubstr("SPYRE_COMPILE_GRANULARITY='layer'"));
  {
    const Variable bad("SPYRE_COMPILE_GRANULARITY", "layer");
    EXPECT_THAT(refusal({.enforce_eager = true}), HasSubstr("SPYRE_COMPILE_GRANULARITY")) << "also when eager";
  }
  for (const char* known : {"block", "model"}) {
    EXPECT_EQ(setting_refusal("SPYRE_COMPILE_GRANULARITY", known), "accepted") << known;
  }
  std::string many = "1";
  for (int i = 2; i < 2000; ++i) many += "," + std::to_string(i);
  EXPECT_THAT(setting_refusal("SPYRE_ATTN_QUERY_BUCKETS", many.c_str()), HasSubstr("more than 1024"));
  // Empty counts as unset, as in the original.
  EXPECT_EQ(setting_refusal("SPYRE_COMPILE_GRANULARITY", ""), "accepted");
}

}  // namespace
}  // namespace spyre::plugin
