#include "cli/generate_json.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

namespace spyre::cli {
namespace {

using nlohmann::json;
using runner::TokenLogprob;

TEST(GenerateJson, HasIdLogprobAndPairs) {
  std::string text;
  append_logprob(text, TokenLogprob{.token = 5, .logprob = -0.25f, .rank = 1, .top = {{5, -0.25f}, {7, -2.5f}}});
  EXPECT_EQ(text, R"({"id":5,"logprob":-0.25,"top":[[5,-0.25],[7,-2.5]]})");
}

TEST(GenerateJson, StartsThePromptWithNull) {
  EXPECT_EQ(logprobs_json({}, true), "[null]");
  EXPECT_EQ(logprobs_json({}, false), "[]");
  EXPECT_EQ(logprobs_json({{.token = 1, .logprob = -1}}, true), R"([null,{"id":1,"logprob":-1,"top":[]}])");
  EXPECT_EQ(json::parse(logprobs_json({{.token = 1}, {.token = 2}}, false)).size(), 2u);
}

TEST(GenerateJson, WritesNullForAProbabilityOfZero) {
  std::string text;
  append_logprob(text, TokenLogprob{.token = 1, .logprob = -std::numeric_limits<float>::infinity()});
  EXPECT_TRUE(json::parse(text)["logprob"].is_null());
}

TEST(GenerateJson, EveryFloatComesBack) {
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isfinite(value)) continue;
    std::string text;
    append_logprob(text, TokenLogprob{.token = 1, .logprob = value});
    const float back = static_cast<float>(json::parse(text)["logprob"].get<double>());
    ASSERT_EQ(std::bit_cast<uint32_t>(back), std::bit_cast<uint32_t>(value)) << text;
  }
}

}  // namespace
}  // namespace spyre::cli
