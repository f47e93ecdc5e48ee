#include "nn/models/config_keys.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "nn/models/llama.h"
#include "nn/test_models.h"

namespace spyre::nn {
namespace {

std::string refusal(const nlohmann::json& config) {
  try {
    refuse_unbuilt_keys(config, "LlamaForCausalLM", {"hidden_size"});
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    return error.what();
  }
}

TEST(ConfigKeys, KeysThatChangeTheMathsAreRefusedByNameAndValue) {
  const std::vector<std::pair<std::string, nlohmann::json>> keys = {
      {"residual_multiplier", 0.22},  {"attention_multiplier", 0.0156},
      {"embedding_multiplier", 12},   {"logits_scaling", 8.0},
      {"sliding_window", 4096},       {"attn_logit_softcapping", 50.0},
      {"num_local_experts", 8},       {"quantization_config", {{"bits", 4}}},
      {"use_qk_norm", true},          {"clip_qkv", 8.0},
      {"partial_rotary_factor", 0.5}, {"layer_types", {"sliding_attention"}}};
  for (const auto& [key, value] : keys) {
    const std::string message = refusal({{"hidden_size", 7}, {key, value}});
    EXPECT_NE(message.find("'" + key + "'"), std::string::npos) << key << ": " << message;
    EXPECT_NE(message.find("LlamaForCausalLM"), std::string::npos) << message;
  }
  EXPECT_NE(refusal({{"residual_multiplier", 0.22}}).find("0.22"), std::string::npos);
}

TEST(ConfigKeys, NeutralValuesPass) {
  EXPECT_EQ(refusal({{"residual_multiplier", 1.0},
                     {"sliding_window", nullptr},
                     {"use_sliding_window", false},
                     {"attn_logit_softcapping", nullptr},
                     {"pretraining_tp", 1},
                     {"quantization_config", nullptr},
                     {"layer_types", {"full_attention", "full_attention"}},
                     {"hidden_size", 5},
                     {"use_cache", true},
                     {"torch_dtype", "bfloat16"},
                     {"transformers_version", "5.0"}}),
            "");
}

TEST(ConfigKeys, UnknownKeysWithoutATellingNamePass) {
  EXPECT_EQ(refusal({{"favourite_colour", "green"}}), "");
}

TEST(ConfigKeys, MessagesStayShortAndOnOneLine) {
  const std::string message = refusal({{"rope_nonsense", std::string(5000, '\n') + "\xff\xfe"}});
  EXPECT_LT(message.size(), 300u);
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST(LlamaConfig, OtherActivationsAndPartialRotationAreRefused) {
  nlohmann::json json = testing::tiny_config();
  EXPECT_NO_THROW(check_llama_config(testing::parsed(json)));
  json["hidden_act"] = "gelu";
  EXPECT_THROW(check_llama_config(testing::parsed(json)), Error);
  json["hidden_act"] = "silu";
  json["partial_rotary_factor"] = 0.5;
  EXPECT_THROW(check_llama_config(testing::parsed(json)), Error);
}

TEST(LlamaConfig, RotaryPerKindOfLayerIsRefused) {
  nlohmann::json json = testing::tiny_config();
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5e5}};
  EXPECT_NO_THROW(check_llama_config(testing::parsed(json)));
  json["rope_parameters"] = {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 5e5}}}};
  try {
    check_llama_config(testing::parsed(json));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("full_attention"), std::string::npos) << error.what();
  }
}

TEST(LlamaConfig, UnbuiltRopeTypeIsRefused) {
  nlohmann::json json = testing::tiny_config();
  json["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}};
  const auto config = testing::parsed(json);
  EXPECT_THROW(testing::build(config), Error);
}

}  // namespace
}  // namespace spyre::nn
