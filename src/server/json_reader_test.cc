#include "server/json_reader.h"

#include <gmock/gmock.h>

#include "server/api_error.h"

namespace spyre::server {
namespace {

std::string refusal(std::string_view text, const JsonLimits& limits = {}) {
  try {
    parse_json(text, limits);
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 400);
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos);
    return error.what();
  }
  return "";
}

TEST(JsonReader, KeepsTheOrderOfKeysAndEveryKindOfValue) {
  const std::string text = R"({"z":1,"a":[true,null,-5,2.5,"é\u0000\ud83d\ude00"],"m":{"k":18446744073709551615}})";
  EXPECT_EQ(dump(parse_json(text)),
            "{\"z\":1,\"a\":[true,null,-5,2.5,\"é\\u0000😀\"],\"m\":{\"k\":18446744073709551615}}");
  EXPECT_EQ(dump(parse_json(" [ ] ")), "[]");
  EXPECT_EQ(dump(parse_json("3")), "3");
}

TEST(JsonReader, RefusesWhatIsNoJson) {
  for (const char* text : {"",
                           " ",
                           "{",
                           "[1,]",
                           "{\"a\":1,}",
                           "NaN",
                           "[NaN]",
                           "[Infinity]",
                           "[-Infinity]",
                           "[1e400]",
                           "[-1e400]",
                           "[01]",
                           "[+1]",
                           "[.5]",
                           "[1.]",
                           "'a'",
                           "{a:1}",
                           "[1] x",
                           "\"\\x\"",
                           "\"\\ud800\"",
                           "\"\\udc00x\"",
                           "\"\\ud83d\\u0041\"",
                           "\"\x01\"",
                           "\"\xff\"",
                           "\"\xc0\x80\"",
                           "\"\xed\xa0\x80\"",
                           "\"\xf4\x90\x80\x80\"",
                           "\"abc",
                           "tru",
                           "// c\n1",
                           "\xff\xfe{"}) {
    EXPECT_NE(refusal(text), "") << text;
  }
  EXPECT_NE(refusal(std::string_view("[1]\0", 4)), "");
}

TEST(JsonReader, RefusesAKeyThatStandsTwice) {
  EXPECT_THAT(refusal(R"({"a":1,"b":{"c":1,"c":2}})"), ::testing::HasSubstr("'c'"));
  EXPECT_EQ(refusal(R"({"a":{"a":{"a":1}}})"), "");
}

TEST(JsonReader, RefusesDepthCheaply) {
  const std::string deep(20000, '[');
  EXPECT_THAT(refusal(deep), ::testing::HasSubstr("deeper than 64"));
  std::string objects;
  for (int i = 0; i < 20000; ++i) objects += "{\"a\":";
  EXPECT_THAT(refusal(objects), ::testing::HasSubstr("deeper than 64"));
  EXPECT_EQ(refusal(std::string(64, '[') + std::string(64, ']')), "");
  EXPECT_NE(refusal(std::string(65, '[') + std::string(65, ']')), "");
}

TEST(JsonReader, CountsValuesMembersAndBytes) {
  const JsonLimits limits{.max_depth = 4, .max_values = 5, .max_members = 2, .max_string_bytes = 3};
  EXPECT_EQ(refusal("[1,2,3,4]", limits), "");
  EXPECT_NE(refusal("[1,2,3,4,5]", limits), "");
  EXPECT_EQ(refusal(R"({"a":1,"b":2})", limits), "");
  EXPECT_NE(refusal(R"({"a":1,"b":2,"c":3})", limits), "");
  EXPECT_EQ(refusal(R"("abc")", limits), "");
  EXPECT_NE(refusal(R"("abcd")", limits), "");
  EXPECT_NE(refusal(R"({"abcd":1})", limits), "");
}

// Quadratic behaviour would take minutes.
TEST(JsonReader, TakesAnObjectOfManyKeysInLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 100000; ++i) text += (i ? ",\"k" : "\"k") + std::to_string(i) + "\":0";
  EXPECT_EQ(parse_json(text + "}").size(), 100000u);
}

TEST(JsonReader, WritesValidUtf8WhateverAStringHolds) {
  EXPECT_EQ(dump(Json("a\xff")), "\"a\xef\xbf\xbd\"");
}

}  // namespace
}  // namespace spyre::server
