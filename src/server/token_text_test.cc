#include "server/token_text.h"

#include <gmock/gmock.h>

#include <cmath>

#include "server/testing/test_server.h"

namespace spyre::server {
namespace {

using testing::tiny_tokenizer;

TEST(ValidUtf8, ReplacesWhatIsNoCharacter) {
  const std::string good = "aé€😀\xf4\x8f\xbf\xbf";
  EXPECT_EQ(valid_utf8(good), good);
  const std::string bad = "\xef\xbf\xbd";
  EXPECT_EQ(valid_utf8("\xff"), bad);
  EXPECT_EQ(valid_utf8("\xf0\x9f\x98"), bad);  // a character cut short is one
  EXPECT_EQ(valid_utf8("\xf0\x9f\x98x"), bad + "x");
  EXPECT_EQ(valid_utf8("\x80\x80"), bad + bad);
  EXPECT_EQ(valid_utf8("\xc0\xaf"), bad + bad);            // overlong
  EXPECT_EQ(valid_utf8("\xed\xa0\x80"), bad + bad + bad);  // a surrogate
  EXPECT_EQ(valid_utf8("\xf5\x80"), bad + bad);
}

TEST(TokenText, HasTheTrueBytesOfPartsOfCharacters) {
  const TokenText text(&tiny_tokenizer(), false);
  EXPECT_EQ(text.bytes(264) + text.bytes(495), "😀");
  EXPECT_EQ(count_characters(text.bytes(264)) + count_characters(text.bytes(495)), 1);
  EXPECT_EQ(text.text(264).find('\xf0'), std::string::npos);  // no half character
  EXPECT_EQ(text.text(3), "<|im_end|>");
  EXPECT_EQ(text.text(100000), "");
  EXPECT_EQ(TokenText(&tiny_tokenizer(), true).text(68), "token_id:68");
  EXPECT_EQ(TokenText(nullptr, false).text(68), "token_id:68");
}

TEST(TokenText, LogprobsAreFinite) {
  EXPECT_EQ(finite_logprob(-INFINITY), -9999.0);
  EXPECT_EQ(finite_logprob(-1e30f), -9999.0);
  EXPECT_EQ(finite_logprob(-0.5f), -0.5);
}

TEST(CompletionLogprobs, HasParallelListsAndOffsetsInCharacters) {
  const TokenText text(&tiny_tokenizer(), false);
  CompletionLogprobs out(text, 2);
  int64_t offset = 0;
  out.add_first_prompt_token(264, offset);
  out.add({.token = 495, .logprob = -1, .top = {{68, -0.5f}, {495, -1}}}, offset);
  out.add({.token = 68, .logprob = -2, .top = {{69, -0.5f}, {70, -1}}}, offset);
  const Json json = out.take();
  EXPECT_EQ(json["tokens"].size(), 3u);
  EXPECT_EQ(json["text_offset"], Json({0, 1, 1}));
  EXPECT_EQ(offset, 2);
  EXPECT_TRUE(json["token_logprobs"][0].is_null() && json["top_logprobs"][0].is_null());
  EXPECT_EQ(json["token_logprobs"][2], -2);
  EXPECT_EQ(json["top_logprobs"][1].size(), 2u);  // the token is one of the two
  EXPECT_EQ(json["top_logprobs"][2], Json({{"a", -2.0}, {"b", -0.5}, {"c", -1.0}}));
}

// Two tokens whose texts are both U+FFFD must not make one key twice.
TEST(CompletionLogprobs, AKeyStandsOnce) {
  const TokenText text(&tiny_tokenizer(), false);
  std::vector<int32_t> halves;
  for (int32_t id = 4; id < 500; ++id) {
    if (text.text(id) == "\xef\xbf\xbd") halves.push_back(id);
  }
  ASSERT_GE(halves.size(), 2u);
  CompletionLogprobs out(text, 2);
  int64_t offset = 0;
  out.add({.token = halves[0], .logprob = -1, .top = {{halves[1], -0.5f}, {halves[0], -1}}}, offset);
  const Json json = parse_json(dump(out.take()));
  EXPECT_EQ(json["top_logprobs"][0].size(), 1u);
  EXPECT_EQ(json["top_logprobs"][0].front(), -0.5);
}

TEST(ChatLogprob, HasBytes) {
  const TokenText text(&tiny_tokenizer(), false);
  const Json json = chat_logprob(text, {.token = 264, .logprob = -1, .top = {{68, -0.5f}, {69, -0.75f}}}, 1);
  EXPECT_EQ(json["bytes"].size(), text.bytes(264).size());
  EXPECT_EQ(json["bytes"][0], static_cast<unsigned char>(text.bytes(264)[0]));
  ASSERT_EQ(json["top_logprobs"].size(), 1u);
  EXPECT_EQ(json["top_logprobs"][0], Json({{"token", "a"}, {"logprob", -0.5}, {"bytes", {97}}}));
}

TEST(PromptLogprobs, AreVllmsShape) {
  const TokenText text(&tiny_tokenizer(), false);
  const Json json = prompt_logprobs_json(text, {{.token = 68, .logprob = -2, .rank = 9, .top = {{69, -0.5f}}}});
  ASSERT_EQ(json.size(), 2u);
  EXPECT_TRUE(json[0].is_null());
  EXPECT_EQ(json[1]["68"], Json({{"logprob", -2.0}, {"rank", 9}, {"decoded_token", "a"}}));
  EXPECT_EQ(json[1]["69"]["rank"], 1);
}

}  // namespace
}  // namespace spyre::server
