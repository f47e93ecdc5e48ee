#include "text/model_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "text/test_data.h"

namespace spyre::text {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Tokenizer tiny() {
  return Tokenizer::from_json(testing::read_text(testing::data_path("tiny_tokenizer.json")),
                              {.eos_tokens = {"<|im_end|>"}});
}

TEST(ModelTokenizer, AFolderWithoutOneHasNone) {
  const auto checkpoint = formats::Checkpoint::open(std::filesystem::path(SPYRE_GOLDEN_DATA) / "llama_gqa64");
  EXPECT_FALSE(open_tokenizer(*checkpoint).has_value());
}

TEST(ModelTokenizer, TextsEndAtTheTokensOfModelAndTokenizer) {
  const auto checkpoint = formats::Checkpoint::open(std::filesystem::path(SPYRE_GOLDEN_DATA) / "llama_gqa64");
  EXPECT_THAT(eos_token_ids(*checkpoint, std::nullopt), ElementsAre(2));
  EXPECT_THAT(eos_token_ids(*checkpoint, tiny()), ElementsAre(2, 3));
}

TEST(ModelTokenizer, AWordIsSpeltAtTheStartAndAfterASpace) {
  const Tokenizer tokenizer = tiny();
  const auto id = [&](const char* token) { return tokenizer.token_to_id(token).value(); };
  for (const char* word : {"not", "  not"}) {
    EXPECT_THAT(word_spellings(tokenizer, word), ElementsAre(ElementsAre(id("not")), ElementsAre(id("Ġnot"))));
  }
  // A second spelling of more tokens would be found by its end, where the first one is.
  EXPECT_THAT(word_spellings(tokenizer, "!"), ElementsAre(ElementsAre(id("!"))));
  EXPECT_THAT(word_spellings(tokenizer, "   "), IsEmpty());
}

}  // namespace
}  // namespace spyre::text
