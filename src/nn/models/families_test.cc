// What each family builds, and what it refuses by name. That the maths are right is shown by the golden models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "nn/models/granite.h"
#include "nn/test_models.h"

namespace spyre::nn {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

json config_of(const std::string& architecture, const std::string& model_type, const json& more = json::object()) {
  json config = testing::tiny_config();
  config["architectures"] = {architecture};
  config["model_type"] = model_type;
  config.update(more);
  return config;
}
json mistral(const json& more = json::object()) {
  json config = config_of("MistralForCausalLM", "mistral", {{"sliding_window", nullptr}});
  config.update(more);
  return config;
}
json qwen2(const json& more = json::object()) {
  return config_of("Qwen2ForCausalLM", "qwen2", more);
}
json qwen3(const json& more = json::object()) {
  return config_of("Qwen3ForCausalLM", "qwen3", more);
}
json granite(const json& more = json::object()) {
  return config_of("GraniteForCausalLM", "granite", more);
}

std::vector<std::string> parameters_of(const json& config) {
  const formats::ModelConfig parsed = testing::parsed(config);
  std::vector<std::string> names;
  const std::function<void(const Module&)> walk = [&](const Module& module) {
    for (const auto& parameter : module.parameters()) names.push_back(parameter->name);
    for (const Module* child : module.children()) walk(*child);
  };
  walk(*testing::build(parsed));
  return names;
}

std::string refusal(const json& config, ErrorCode code = ErrorCode::kUnsupported) {
  try {
    testing::build(testing::parsed(config));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "";
}

TEST(Families, BiasesStandWhereEachFamilyHasThem) {
  const std::string attention = "model.layers.1.self_attn.";
  EXPECT_THAT(parameters_of(qwen2()),
              AllOf(Contains(attention + "qkv_proj.bias"), Not(Contains(attention + "o_proj.bias"))));
  EXPECT_THAT(parameters_of(mistral()), Not(Contains(HasSubstr(".bias"))));
  EXPECT_THAT(parameters_of(qwen3()), Not(Contains(HasSubstr(".bias"))));
  EXPECT_THAT(parameters_of(qwen3({{"attention_bias", true}})),
              IsSupersetOf({attention + "qkv_proj.bias", attention + "o_proj.bias"}));
  EXPECT_THAT(parameters_of(granite({{"attention_bias", true}, {"mlp_bias", true}})),
              IsSupersetOf({attention + "qkv_proj.bias", attention + "o_proj.bias",
                            std::string("model.layers.1.mlp.down_proj.bias")}));
}

TEST(Families, Qwen3NormsTheHeadsOfQAndK) {
  EXPECT_THAT(parameters_of(qwen3()), IsSupersetOf({std::string("model.layers.0.self_attn.q_norm.weight"),
                                                    std::string("model.layers.0.self_attn.k_norm.weight")}));
  EXPECT_THAT(parameters_of(qwen2()), Not(Contains(HasSubstr("q_norm"))));
}

// testing::build asks for 64 positions.
TEST(Families, AWindowThatCanBeReachedIsRefusedWithTheNumbers) {
  EXPECT_THAT(refusal(mistral({{"sliding_window", 63}})),
              AllOf(HasSubstr("sliding_window 63"), HasSubstr("max_model_len 64"), HasSubstr("MistralForCausalLM")));
  EXPECT_EQ(refusal(mistral({{"sliding_window", 64}})), "");
  EXPECT_EQ(refusal(mistral({{"sliding_window", nullptr}})), "");

  const json windows = {{"use_sliding_window", true}, {"sliding_window", 32}, {"max_window_layers", 1}};
  EXPECT_THAT(refusal(qwen2(windows)), AllOf(HasSubstr("sliding_window 32"), HasSubstr("Qwen2ForCausalLM")));
  EXPECT_THAT(refusal(qwen3(windows)), AllOf(HasSubstr("sliding_window 32"), HasSubstr("Qwen3ForCausalLM")));
  for (const json& harmless : {json{{"use_sliding_window", false}}, json{{"max_window_layers", 2}},
                               json{{"sliding_window", 64}}, json{{"sliding_window", nullptr}}}) {
    json all = windows;
    all.update(harmless);
    EXPECT_EQ(refusal(qwen2(all)), "") << harmless;
  }
}

// Hugging Face's default window is 4096: a file that leaves the key out means it.
TEST(Families, MistralWithoutTheKeyHasItsDefaultWindow) {
  json config = mistral({{"max_position_embeddings", 8192}});
  config.erase("sliding_window");
  const formats::ModelConfig parsed = testing::parsed(config);
  const LayerRegistry layers;
  const auto build = [&](int64_t length) {
    return ModelRegistry::built_in().build(
        {.config = parsed, .layers = layers, .dtype = DType::kF32, .max_model_len = length});
  };
  EXPECT_NO_THROW(build(4096));
  EXPECT_THROW(build(4097), Error);
}

TEST(Families, Qwen3MustSayItsHeadSize) {
  json config = qwen3();
  config.erase("head_dim");
  EXPECT_THAT(refusal(config, ErrorCode::kCorruptData), HasSubstr("head_dim is missing"));
}

TEST(Families, KeysOfOtherFamiliesAreRefused) {
  for (const json& config : {mistral({{"residual_multiplier", 0.22}}), qwen2({{"attention_multiplier", 0.1}}),
                             qwen3({{"logits_scaling", 8}}), granite({{"num_local_experts", 4}}),
                             granite({{"sliding_window", 16}}), mistral({{"attention_bias", true}})}) {
    EXPECT_THAT(refusal(config), HasSubstr("changes the maths")) << config;
  }
  EXPECT_THAT(refusal(qwen2({{"hidden_act", "gelu"}})), AllOf(HasSubstr("'gelu'"), HasSubstr("Qwen2ForCausalLM")));
  EXPECT_THAT(refusal(qwen2({{"layer_types", {"full_attention", "sliding_attention"}}})), HasSubstr("layer_types"));
}

TEST(Families, DynamicScalingIsRefusedByName) {
  EXPECT_THAT(refusal(qwen2({{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}}})), HasSubstr("'dynamic'"));
  EXPECT_EQ(refusal(qwen2({{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}}}})), "");
}

TEST(Families, GraniteReadsItsMultipliers) {
  const GraniteMultipliers plain(testing::parsed(granite()));
  EXPECT_EQ(plain.embedding, 1);
  EXPECT_EQ(plain.attention, 1);  // of q.k itself: not the same as leaving it to the head size
  const GraniteMultipliers given(testing::parsed(granite({{"embedding_multiplier", 12},
                                                          {"attention_multiplier", 0.0078125},
                                                          {"residual_multiplier", 0.22},
                                                          {"logits_scaling", 16.0}})));
  EXPECT_EQ(given.embedding, 12);
  EXPECT_EQ(given.attention, 0.0078125);
  EXPECT_EQ(given.residual, 0.22);
  EXPECT_EQ(given.logits, 16);
  EXPECT_THAT(refusal(granite({{"residual_multiplier", "x"}}), ErrorCode::kCorruptData),
              HasSubstr("residual_multiplier"));
  EXPECT_THAT(refusal(granite({{"logits_scaling", 0}}), ErrorCode::kCorruptData), HasSubstr("logits_scaling is 0"));
}

}  // namespace
}  // namespace spyre::nn
