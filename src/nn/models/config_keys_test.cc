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

TEST(ConfigKeys, PartsOfANetworkThatLlamaHasNotAreRefused) {
  const std::vector<std::pair<std::string, nlohmann::json>> keys = {
      {"is_causal", false},
      {"attention_multiplier", 1.0},  // the scale itself, not a factor on 1/sqrt(head
                                      // size)
      {"query_pre_attn_scalar", 1},
      {"attention_chunk_size", 8192},
      {"attn_temperature_tuning", true},
      {"attn_type_list", {1, 0}},
      {"cross_attention_layers", {3, 8}},
      {"full_attention_interval", 4},
      {"linear_num_key_heads", 16},
      {"use_bidirectional_attention", true},
      {"swiglu_limit", 7.0},
      {"nope_layers", {3, 7}},
      {"hybrid_override_pattern", "M-M*"},
      {"hidden_size_per_layer_input", 256},
      {"num_kv_shared_layers", 15},
      {"first_k_dense_replace", 3},
      {"dim_model_base", 256},
      {"conv_L_cache", 3}};
  for (const auto& [key, value] : keys)
    EXPECT_NE(refusal({{key, value}}).find("'" + key + "'"), std::string::npos) << key;
}

// What published Llama checkpoints carry beside the sizes.
TEST(ConfigKeys, KeysOfPublishedCheckpointsPass) {
  EXPECT_EQ(refusal({{"is_llama_config", true},
                     {"rope_interleaved", false},
                     {"transformers.js_config", {{"kv_cache_dtype", {{"q4f16", "float16"}}}}},
                     {"pretraining_tp", 1},
                     {"max_sequence_length", 2048},
                     {"model_max_length", 4096},
                     {"tokenizer_class", "LlamaTokenizer"},
                     {"pad_token_id", -1},
                     {"is_causal", true},
                     {"is_decoder", true},
                     {"add_cross_attention", false},
                     {"cross_attention_hidden_size", nullptr},
                     {"use_flash_attention", true},
                     {"_attn_implementation_autoset", true},
                     {"_flash_attn_2_enabled", true},
                     {"unsloth_fixed", true},
                     {"temperature", 0.6},
                     {"top_k", 50},
                     {"max_length", 4096},
                     {"pruned_heads", nlohmann::json::object()}}),
            "");
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
  json["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", 4.0}};
  const auto config = testing::parsed(json);
  EXPECT_THROW(testing::build(config), Error);
}

}  // namespace
}  // namespace spyre::nn
