#include "nn/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/layers/norm.h"
#include "nn/test_models.h"

namespace spyre::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OtherNorm : public RMSNorm {
 public:
  explicit OtherNorm(const Options& options) : RMSNorm("OtherNorm", options) {}
};

int64_t count(const Module& model, const std::string& class_name) {
  int64_t found = 0;
  walk(model, [&](const Module& module) { found += module.class_name() == class_name; });
  return found;
}

template <typename Call>
std::string error_of(Call&& call, ErrorCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(LayerRegistry, ReplacementTakesThePlaceOfItsBaseEverywhere) {
  const auto config = testing::parsed(testing::tiny_config(3));
  EXPECT_EQ(count(*testing::build(config), "RMSNorm"), 7);
  LayerRegistry layers;
  layers.register_oot<RMSNorm>([](const RMSNorm::Options& options) { return std::make_unique<OtherNorm>(options); });
  EXPECT_THAT(layers.replaced(), ElementsAre("RMSNorm"));
  const auto model = testing::build(config, layers);
  EXPECT_EQ(count(*model, "OtherNorm"), 7);
  EXPECT_EQ(count(*model, "RMSNorm"), 0);
}

TEST(LayerRegistry, ReplacingTwiceIsRefused) {
  LayerRegistry layers;
  const auto factory = [](const RMSNorm::Options& options) { return std::make_unique<OtherNorm>(options); };
  layers.register_oot<RMSNorm>(factory);
  EXPECT_THAT(error_of([&] { layers.register_oot<RMSNorm>(factory); }, ErrorCode::kFailedPrecondition),
              HasSubstr("RMSNorm"));
}

std::unique_ptr<CausalLM> nothing(const ModelBuildContext& /*context*/) {
  return nullptr;
}

TEST(ModelRegistry, AdaptingAnUnknownArchitectureFailsAtRegistration) {
  ModelRegistry registry = ModelRegistry::built_in();
  const std::string message = error_of([&] { registry.adapt_model("LamaForCausalLM", nothing); }, ErrorCode::kNotFound);
  EXPECT_THAT(message, HasSubstr("LamaForCausalLM"));
  EXPECT_THAT(message, AllOf(HasSubstr("known: "), HasSubstr("LlamaForCausalLM")));
}

TEST(ModelRegistry, AdaptationReplacesAndRegistrationDoesNot) {
  ModelRegistry registry = ModelRegistry::built_in();
  EXPECT_THAT(error_of([&] { registry.register_model("LlamaForCausalLM", nothing); }, ErrorCode::kFailedPrecondition),
              HasSubstr("LlamaForCausalLM"));
  registry.adapt_model("LlamaForCausalLM", nothing);
  const auto config = testing::parsed(testing::tiny_config());
  const LayerRegistry layers;
  EXPECT_EQ(registry.build({.config = config, .layers = layers, .dtype = DType::kF32, .max_model_len = 4}), nullptr);
}

TEST(ModelRegistry, UnknownArchitectureIsRefusedByName) {
  nlohmann::json json = testing::tiny_config();
  json["architectures"] = {"OracleForCausalLM"};
  const auto config = testing::parsed(json);
  EXPECT_THAT(error_of([&] { testing::build(config); }, ErrorCode::kUnsupported), HasSubstr("OracleForCausalLM"));
  json["architectures"] = {"Oracle\n\x1b[31mForCausalLM", std::string(100000, 'A')};
  const auto hostile = testing::parsed(json);
  const std::string message = error_of([&] { testing::build(hostile); }, ErrorCode::kUnsupported);
  EXPECT_THAT(message, HasSubstr("Oracle\\x0a\\x1b[31mForCausalLM"));
  EXPECT_LT(message.size(), 400u);
  json["architectures"] = nlohmann::json::array();
  const auto none = testing::parsed(json);
  EXPECT_THAT(error_of([&] { testing::build(none); }, ErrorCode::kUnsupported), HasSubstr("no architecture"));
}

}  // namespace
}  // namespace spyre::nn
