#include "formats/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "formats/checkpoint.h"
#include "formats/hostile_test_util.h"

namespace spyre::formats {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(GenerationDefaults, AreTheKeysThatTheFileGives) {
  const GenerationDefaults all = parse_generation_defaults(
      R"({"do_sample":false,"temperature":0.6,"top_p":0.95,"top_k":20,"min_p":0,"repetition_penalty":1.05,
          "max_new_tokens":2048,"eos_token_id":[1,2],"num_beams":1})",
      "g.json");
  EXPECT_EQ(all.temperature, 0.6);
  EXPECT_EQ(all.top_p, 0.95);
  EXPECT_EQ(all.top_k, 20);
  EXPECT_EQ(all.min_p, 0.0);
  EXPECT_EQ(all.repetition_penalty, 1.05);
  EXPECT_EQ(all.max_new_tokens, 2048);
  EXPECT_EQ(all.to_string(),
            "temperature 0.6, top_p 0.95, top_k 20, min_p 0, repetition_penalty 1.05, max_new_tokens 2048");

  const GenerationDefaults none = parse_generation_defaults(R"({"temperature":null,"eos_token_id":2})", "g.json");
  EXPECT_EQ(none.to_string(), "");
  EXPECT_FALSE(none.temperature);
}

TEST(GenerationDefaults, OutOfRangeIsNamed) {
  for (const auto& [text, key] :
       std::initializer_list<std::pair<const char*, const char*>>{{R"({"temperature":-1})", "temperature"},
                                                                  {R"({"temperature":"hot"})", "temperature"},
                                                                  {R"({"top_p":0})", "top_p"},
                                                                  {R"({"top_p":1.5})", "top_p"},
                                                                  {R"({"top_k":-2})", "top_k"},
                                                                  {R"({"top_k":2.5})", "top_k"},
                                                                  {R"({"min_p":2})", "min_p"},
                                                                  {R"({"repetition_penalty":0})", "repetition_penalty"},
                                                                  {R"({"max_new_tokens":0})", "max_new_tokens"}}) {
    try {
      parse_generation_defaults(text, "g.json");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("g.json"), HasSubstr(key)));
    }
  }
}

TEST(GenerationDefaults, AFileOfAModelWithoutOneGivesNone) {
  for (const char* model : {"tiny_llama.gguf", "sharded"})
    EXPECT_EQ(read_generation_defaults(*Checkpoint::open(testing::data_path(model))).to_string(), "");
}

}  // namespace
}  // namespace spyre::formats
