#include "formats/model_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "formats/gguf.h"
#include "formats/hostile_test_util.h"

namespace spyre::formats {
namespace {

using nlohmann::json;
using testing::data_path;
using testing::slurp;

json base() {
  return json::parse(R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":64,
    "intermediate_size":172,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":100,
    "max_position_embeddings":512,"rms_norm_eps":1e-5,"rope_theta":500000.0,"hidden_act":"silu"})");
}

ModelConfig parse(const json& config, const std::string& generation = "") {
  return parse_model_config(config.dump(), generation, "config.json", "generation_config.json");
}

std::string refusal(const json& config, const std::string& generation = "") {
  return testing::read_hostile(
      [&](std::span<const std::byte>) {
        parse_model_config(config.is_string() ? config.get<std::string>() : config.dump(), generation, "config.json",
                           "generation_config.json");
      },
      config.dump(), "config.json");
}

TEST(ModelConfig, ReadsALlama) {
  const ModelConfig config = parse(base());
  EXPECT_EQ(config.architectures, std::vector<std::string>{"LlamaForCausalLM"});
  EXPECT_EQ(config.model_type, "llama");
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.intermediate_size, 172);
  EXPECT_EQ(config.num_hidden_layers, 2);
  EXPECT_EQ(config.num_attention_heads, 4);
  EXPECT_EQ(config.num_key_value_heads, 2);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.vocab_size, 100);
  EXPECT_EQ(config.max_position_embeddings, 512);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(config.rope.theta, 500000.0);
  EXPECT_EQ(config.rope.type, "default");
  EXPECT_EQ(config.dtype, std::nullopt);
  EXPECT_TRUE(config.eos_token_ids.empty());
  EXPECT_EQ(config.bos_token_id, std::nullopt);
  EXPECT_EQ(config.raw["rope_theta"], 500000.0);
}

TEST(ModelConfig, HeadDimMayBeGivenNullOrAbsent) {
  json config = base();
  config["head_dim"] = nullptr;
  EXPECT_EQ(parse(config).head_dim, 16);
  config["head_dim"] = 24;
  config["hidden_size"] = 65;  // no multiple of the heads: then head_dim must be given
  EXPECT_EQ(parse(config).head_dim, 24);
}

TEST(ModelConfig, TyingDefaultsByFamily) {
  json config = base();
  for (const auto& [family, tied] :
       {std::pair("llama", false), {"qwen2", false}, {"granite", false}, {"gemma", true}, {"gemma3_text", true}}) {
    config["model_type"] = family;
    EXPECT_EQ(parse(config).tie_word_embeddings, tied) << family;
  }
  config["tie_word_embeddings"] = false;
  EXPECT_FALSE(parse(config).tie_word_embeddings);
}

TEST(ModelConfig, EosIdsAreUnited) {
  json config = base();
  config["eos_token_id"] = 7;
  EXPECT_EQ(parse(config).eos_token_ids, std::vector<int64_t>{7});
  EXPECT_EQ(parse(config, R"({"eos_token_id":[9,7,3]})").eos_token_ids, (std::vector<int64_t>{3, 7, 9}));
  config["eos_token_id"] = {5, 5};
  EXPECT_EQ(parse(config, R"({"eos_token_id":null})").eos_token_ids, std::vector<int64_t>{5});
}

TEST(ModelConfig, RopeHasThreeSpellings) {
  json config = base();
  config["rope_scaling"] = {{"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 8192},
                            {"rope_type", "llama3"}};
  const RopeConfig old = parse(config).rope;
  EXPECT_EQ(old.type, "llama3");
  EXPECT_EQ(old.theta, 500000.0);
  EXPECT_EQ(old.factor, 8.0);
  EXPECT_EQ(old.original_max_position, 8192);

  json newer = base();
  newer.erase("rope_theta");
  newer["rope_parameters"] = config["rope_scaling"];
  newer["rope_parameters"]["rope_theta"] = 500000.0;
  const RopeConfig fresh = parse(newer).rope;
  EXPECT_EQ(fresh.type, "llama3");
  EXPECT_EQ(fresh.theta, 500000.0);
  EXPECT_EQ(fresh.high_freq_factor, 4.0);

  json kinds = base();
  kinds["rope_parameters"] = {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
                              {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}};
  const ModelConfig gemma = parse(kinds);
  ASSERT_EQ(gemma.rope_by_layer_type.size(), 2u);
  EXPECT_EQ(gemma.rope_by_layer_type[0].first, "full_attention");
  EXPECT_EQ(gemma.rope_by_layer_type[0].second.factor, 8.0);
  EXPECT_EQ(gemma.rope_by_layer_type[1].second.theta, 1e4);

  json older = base();
  older["rope_scaling"] = {{"type", "linear"}, {"factor", 2}};
  EXPECT_EQ(parse(older).rope.type, "linear");
  older["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}};
  EXPECT_EQ(parse(older).rope.type, "yarn");
}

TEST(ModelConfig, YarnHasDefaultsThatFollowFromTheFile) {
  json config = base();
  config["max_position_embeddings"] = 32768;
  config["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}};
  const RopeConfig plain = parse(config).rope;
  EXPECT_EQ(plain.original_max_position, 32768);
  EXPECT_EQ(plain.beta_fast, 32);
  EXPECT_EQ(plain.beta_slow, 1);
  EXPECT_TRUE(plain.truncate);
  EXPECT_NEAR(plain.attention_factor, 1.1386294, 1e-7);  // 0.1 ln 4 + 1

  json& rope = config["rope_scaling"];
  rope["original_max_position_embeddings"] = 4096;
  rope["beta_fast"] = 20;
  rope["beta_slow"] = 2.5;
  rope["truncate"] = false;
  rope["mscale"] = 0.5;
  const RopeConfig half = parse(config).rope;
  EXPECT_EQ(half.original_max_position, 4096);
  EXPECT_EQ(half.beta_fast, 20);
  EXPECT_EQ(half.beta_slow, 2.5);
  EXPECT_FALSE(half.truncate);
  EXPECT_EQ(half.attention_factor, plain.attention_factor);  // mscale alone says nothing
  rope["mscale_all_dim"] = 1.0;
  EXPECT_NEAR(parse(config).rope.attention_factor, (0.05 * std::log(4) + 1) / (0.1 * std::log(4) + 1), 1e-12);
  rope["attention_factor"] = 0.75;
  EXPECT_EQ(parse(config).rope.attention_factor, 0.75);
  rope.erase("attention_factor");
  rope["mscale"] = rope["mscale_all_dim"] = nullptr;
  rope["factor"] = 0.5;
  EXPECT_EQ(parse(config).rope.attention_factor, 1.0);
}

TEST(ModelConfig, DtypeHasTwoNames) {
  json config = base();
  config["torch_dtype"] = "bfloat16";
  EXPECT_EQ(parse(config).dtype, DType::kBF16);
  config["dtype"] = "torch.float16";
  EXPECT_EQ(parse(config).dtype, DType::kF16);
}

struct Bad {
  const char* key;
  json value;
  const char* expected;
};

TEST(ModelConfig, RefusesByKeyAndValue) {
  const Bad cases[] = {
      {"hidden_size", nullptr, "config.json: hidden_size is missing"},
      {"hidden_size", 0, "hidden_size is 0; it must be 1 to 65536"},
      {"hidden_size", -64, "hidden_size is -64"},
      {"hidden_size", 65537, "hidden_size is 65537"},
      {"hidden_size", 18446744073709551615ull, "hidden_size is 18446744073709551615"},
      {"hidden_size", "64", "hidden_size is '64'; an integer is expected"},
      {"hidden_size", 64.5, "hidden_size is 64.5; an integer"},
      {"hidden_size", 1e300, "hidden_size is 1e+300"},
      {"hidden_size", json::array({64}), "hidden_size is an array"},
      {"hidden_size", true, "hidden_size is true"},
      {"hidden_size", 66, "hidden_size 66 is no multiple of num_attention_heads 4"},
      {"intermediate_size", 0, "intermediate_size is 0"},
      {"intermediate_size", nullptr, "intermediate_size is missing"},
      {"num_hidden_layers", 1025, "num_hidden_layers is 1025; it must be 1 to 1024"},
      {"num_attention_heads", 0, "num_attention_heads is 0"},
      {"num_attention_heads", 5000, "num_attention_heads is 5000"},
      {"num_key_value_heads", 3, "num_attention_heads 4 is no multiple of num_key_value_heads 3"},
      {"num_key_value_heads", 0, "num_key_value_heads is 0"},
      {"num_key_value_heads", 8, "num_attention_heads 4 is no multiple of num_key_value_heads 8"},
      {"head_dim", 0, "head_dim is 0"},
      {"head_dim", 100000, "head_dim is 100000"},
      {"vocab_size", 1 << 21, "vocab_size is 2097152; it must be 1 to 1048576"},
      {"max_position_embeddings", 0, "max_position_embeddings is 0"},
      {"max_position_embeddings", 1ll << 40, "max_position_embeddings is 1099511627776"},
      {"rms_norm_eps", 0.0, "rms_norm_eps is 0.0"},
      {"rms_norm_eps", -1e-5, "rms_norm_eps is -1e-05"},
      {"rms_norm_eps", "1e-5", "rms_norm_eps is '1e-5'; a number"},
      {"rope_theta", 0, "rope_theta is 0"},
      {"rope_theta", 1e30, "rope_theta is 1e+30"},
      {"tie_word_embeddings", 1, "tie_word_embeddings is 1; true or false"},
      {"hidden_act", 5, "hidden_act is 5; a string"},
      {"hidden_act", std::string(1000, 'x'), "hidden_act is 'xxx"},
      {"torch_dtype", "float8_e4m3fn", "torch_dtype is 'float8_e4m3fn'; float32, float16"},
      {"torch_dtype", "int8\n", "torch_dtype is 'int8\\x0a'"},
      {"eos_token_id", 100, "eos_token_id is 100; it must be 0 to 99"},
      {"eos_token_id", json::array({1, -1}), "eos_token_id is -1"},
      {"eos_token_id", json::array({json::array({1})}), "eos_token_id is an array"},
      {"eos_token_id", json(std::vector<int>(2000, 1)), "eos_token_id lists 2000 ids"},
      {"bos_token_id", 1000, "bos_token_id is 1000"},
      {"architectures", "LlamaForCausalLM", "architectures is 'LlamaForCausalLM'; a list"},
      {"architectures", json::array({5}), "architectures is 5; a name"},
      {"rope_scaling", 5, "rope_scaling is 5; an object"},
      {"rope_scaling", {{"type", "linear"}}, "rope_scaling.factor is missing"},
      {"rope_scaling", {{"type", "linear"}, {"factor", 0}}, "rope_scaling.factor is 0"},
      {"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}}, "rope_scaling.low_freq_factor is missing"},
      {"rope_scaling",
       {{"rope_type", "llama3"},
        {"factor", 8},
        {"low_freq_factor", 4},
        {"high_freq_factor", 4},
        {"original_max_position_embeddings", 8192}},
       "high_freq_factor 4 is not above low_freq_factor 4"},
      {"rope_scaling",
       {{"rope_type", "llama3"},
        {"factor", 8},
        {"low_freq_factor", 1},
        {"high_freq_factor", 4},
        {"original_max_position_embeddings", 0}},
       "original_max_position_embeddings is 0"},
      {"rope_scaling", {{"rope_type", "yarn"}}, "rope_scaling.factor is missing"},
      {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}, {"attention_factor", 0}}, "attention_factor is 0"},
      {"rope_scaling",
       {{"rope_type", "yarn"}, {"factor", 4}, {"beta_fast", 0.5}},
       "beta_fast 0.5 is below beta_slow 1"},
      {"rope_scaling",
       {{"rope_type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", -1}},
       "original_max_position_embeddings is -1"},
      {"rope_parameters", {{"rope_type", "yarn"}, {"factor", 4}, {"rope_theta", 1}}, "rope_theta 1"},
      {"rope_parameters",
       {{"full\nattention", {{"rope_theta", 0}}}},
       "rope_parameters.full\\x0aattention.rope_theta is 0"},
      {"partial_rotary_factor", 1.5, "partial_rotary_factor is 1.5"},
      {"quantization_config", {{"quant_method", "gptq"}}, "quantization_config.quant_method 'gptq' is not read"},
  };
  for (const Bad& bad : cases) {
    json config = base();
    config[bad.key] = bad.value;
    const std::string message = refusal(config);
    EXPECT_NE(message.find(bad.expected), std::string::npos)
        << bad.key << ": expected " << bad.expected << "\ngot " << message;
  }
}

TEST(ModelConfig, RefusesBrokenText) {
  const auto text = [](const std::string& raw) { return refusal(json(raw)); };
  EXPECT_NE(text("").find("broken JSON"), std::string::npos);
  EXPECT_EQ(text("").find("json.exception"), std::string::npos);  // the library's own tag says nothing to a user
  EXPECT_NE(text("[]").find("a JSON object is expected, this is array"), std::string::npos);
  EXPECT_NE(text("{\"a\":").find("broken JSON"), std::string::npos);
  EXPECT_NE(text(std::string(100000, '[')).find("nested deeper than 64"), std::string::npos);
  EXPECT_NE(refusal(base(), "{").find("generation_config.json: broken JSON"), std::string::npos);
  EXPECT_NE(refusal(base(), R"({"eos_token_id":100})").find("generation_config.json: eos_token_id is 100"),
            std::string::npos);
  json multimodal = {{"text_config", base()}};
  EXPECT_NE(refusal(multimodal).find("text_config"), std::string::npos);
}

TEST(ModelConfig, TheDearestJsonStaysWithinTheBound) {
  std::string text = R"({"a":[[])";
  while (text.size() + 8 < (2u << 20)) text += ",[]";
  const std::string file = text + "]}";
  EXPECT_NE(testing::read_hostile([&](std::span<const std::byte>) { parse_model_config(file, "", "config.json", ""); },
                                  file, "config.json"),
            "");
}

TEST(ModelConfig, GgufKeysGiveWhatTheFolderSays) {
  const ModelConfig hf = parse_model_config(slurp(data_path("tiny_llama/config.json")),
                                            slurp(data_path("tiny_llama/generation_config.json")), "c", "g");
  const ModelConfig gguf = model_config_from_gguf(*GgufFile::open(data_path("tiny_llama.gguf")));
  EXPECT_EQ(gguf.architectures, hf.architectures);
  EXPECT_EQ(gguf.model_type, hf.model_type);
  EXPECT_EQ(gguf.hidden_size, hf.hidden_size);
  EXPECT_EQ(gguf.intermediate_size, hf.intermediate_size);
  EXPECT_EQ(gguf.num_hidden_layers, hf.num_hidden_layers);
  EXPECT_EQ(gguf.num_attention_heads, hf.num_attention_heads);
  EXPECT_EQ(gguf.num_key_value_heads, hf.num_key_value_heads);
  EXPECT_EQ(gguf.head_dim, hf.head_dim);
  EXPECT_EQ(gguf.vocab_size, hf.vocab_size);
  EXPECT_EQ(gguf.max_position_embeddings, hf.max_position_embeddings);
  EXPECT_EQ(gguf.rms_norm_eps, hf.rms_norm_eps);
  EXPECT_EQ(gguf.tie_word_embeddings, hf.tie_word_embeddings);
  EXPECT_EQ(gguf.attention_bias, hf.attention_bias);
  EXPECT_EQ(gguf.rope.theta, hf.rope.theta);
  EXPECT_EQ(gguf.rope.type, hf.rope.type);
  EXPECT_EQ(gguf.eos_token_ids, hf.eos_token_ids);
  EXPECT_EQ(gguf.bos_token_id, hf.bos_token_id);
  EXPECT_EQ(gguf.dtype, std::nullopt);  // its matrices have several types
}

// The fuzzers' seed has 8 factors, all 1, as its only rope_freqs.weight.
TEST(ModelConfig, GgufRopeFactorsComeFromTheirTensor) {
  std::string bytes = slurp(std::string(SPYRE_TEST_DATA) + "/fuzz/gguf/good-llama.gguf");
  const auto parsed = [&] { return GgufFile::from_bytes(testing::bytes_of(bytes), "seed.gguf"); };
  const uint64_t offset = parsed()->find_tensor("rope_freqs.weight")->offset;
  const float changed = 8.5f;
  std::memcpy(bytes.data() + offset + 4, &changed, 4);
  const ModelConfig config = model_config_from_gguf(*parsed());
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.rope_freq_factors, (std::vector<float>{1, 8.5f, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(config.rope.type, "default");

  for (const float bad : {0.0f, -1.0f, std::nanf(""), INFINITY}) {
    std::memcpy(bytes.data() + offset + 4, &bad, 4);
    testing::expect_refused([&](std::span<const std::byte>) { model_config_from_gguf(*parsed()); }, bytes,
                            "tensor 'rope_freqs.weight': element 1 is ", "seed.gguf");
  }
  // One head of 32 in place of two of 16 wants 16 factors.
  const std::string key = "llama.attention.head_count";
  bytes[bytes.find(key) + key.size() + 4] = 1;
  testing::expect_refused([&](std::span<const std::byte>) { model_config_from_gguf(*parsed()); }, bytes,
                          "'rope_freqs.weight' is F32 with 8 elements, not F32 with 16", "seed.gguf");
}

}  // namespace
}  // namespace spyre::formats
