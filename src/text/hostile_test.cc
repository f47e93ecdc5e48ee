// Damaged and malicious tokenizer.json: every one ends in an Error with the right code, none in a crash or a hang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "text/fuzz_entries.h"
#include "text/test_data.h"

namespace spyre::text {
namespace {

using nlohmann::json;
using testing::data_path;
using ::testing::HasSubstr;
using testing::read_text;

// a, b, ab and two special tokens.
json small() {
  return json::parse(R"({"version":"1.0","truncation":null,"padding":null,
    "added_tokens":[{"id":3,"content":"<s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},
                    {"id":4,"content":"</s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],
    "normalizer":null,"pre_tokenizer":null,"post_processor":null,"decoder":null,
    "model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]]}})");
}

json byte_level() {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
}

json split(const std::string& pattern) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
}

json replace(const std::string& pattern, const std::string& content) {
  return {{"type", "Replace"}, {"pattern", {{"String", pattern}}}, {"content", content}};
}

json many(const char* list, const json& part, int count) {
  return {{"type", "Sequence"}, {list, std::vector<json>(count, part)}};
}

json nested(const char* list, int depth) {
  json inner = {{"type", "Sequence"}, {list, json::array()}};
  for (int i = 1; i < depth; ++i) inner = {{"type", "Sequence"}, {list, json::array({inner})}};
  return inner;
}

json word_piece(int longest) {
  return {{"type", "WordPiece"},
          {"unk_token", "?"},
          {"continuing_subword_prefix", "##"},
          {"max_input_chars_per_word", longest},
          {"vocab", {{"?", 0}, {"a", 1}, {"##a", 2}}}};
}

json added(int id, const std::string& content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

json special_tokens(int id, int count) {
  return {{"<s>",
           {{"id", "<s>"}, {"ids", std::vector<int>(count, id)}, {"tokens", std::vector<std::string>(count, "<s>")}}}};
}

json template_of(int pieces, const json& tokens) {
  const json piece = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  json list(std::vector<json>(pieces, piece));
  list.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  return {{"type", "TemplateProcessing"}, {"single", list}, {"pair", list}, {"special_tokens", tokens}};
}

constexpr auto kCorrupt = ErrorCode::kCorruptData;
constexpr auto kUnsupported = ErrorCode::kUnsupported;

struct Case {
  const char* name;
  const char* where;  // a JSON pointer into small(); "" replaces the whole
  json value;
  ErrorCode code;
  const char* message;
};

std::vector<Case> cases() {
  const std::string deep_group = std::string(3000, '(') + "a" + std::string(3000, ')');
  return {
      {"version", "/version", "2.0", kUnsupported, "version '2.0'"},
      {"version_number", "/version", 1, kCorrupt, "invalid type"},
      {"no_model", "/model", nullptr, kCorrupt, "model"},
      {"model_number", "/model", 7, kCorrupt, "model"},
      {"model_type", "/model/type", "Tiktoken", kUnsupported, "'Tiktoken'"},
      {"vocab_list", "/model/vocab", json::array({"a", "b"}), kCorrupt, "tokens to ids"},
      {"vocab_two_tokens_one_id", "/model/vocab", {{"a", 0}, {"b", 1}, {"ab", 1}}, kCorrupt, "id 1, which is taken"},
      {"vocab_negative_id", "/model/vocab/ab", -1, kCorrupt, "model"},
      {"vocab_large_id", "/model/vocab/ab", 1 << 22, kCorrupt, "the limit is 4194304"},
      {"vocab_u32_id", "/model/vocab/ab", 4294967295u, kCorrupt, "4294967295"},
      {"vocab_huge_id", "/model/vocab/ab", 1e300, kCorrupt, "model"},
      {"vocab_half_id", "/model/vocab/ab", 1.5, kCorrupt, "model"},
      {"vocab_long_token", "/model/vocab", {{std::string(20000, 'a'), 0}}, kCorrupt, "20000 bytes"},
      {"merge_unknown", "/model/merges", json::array({json::array({"a", "z"})}), kCorrupt, "`z` out of vocabulary"},
      {"merge_product", "/model/merges", json::array({"b a"}), kCorrupt, "`ba` out of vocabulary"},
      {"merge_cycle", "/model/merges", json::array({"a b", "ab a"}), kCorrupt, "longer than any token"},
      {"merge_empty", "/model/merges", json::array({json::array({"a", ""})}), kCorrupt, "adds nothing"},
      {"merge_one", "/model/merges", json::array({"ab"}), kCorrupt, "not two tokens"},
      {"merge_three", "/model/merges", json::array({"a b a"}), kCorrupt, "not two tokens"},
      {"merge_three_list", "/model/merges", json::array({json::array({"a", "b", "a"})}), kCorrupt, "not two tokens"},
      {"merge_number", "/model/merges", json::array({5}), kCorrupt, "a merge"},
      {"merges_object", "/model/merges", json::object(), kCorrupt, "model"},
      // The library cuts the prefix off without looking: here it would cut a character in half.
      {"merge_prefix",
       "/model",
       {{"type", "BPE"},
        {"continuing_subword_prefix", "#"},
        {"vocab", {{"a", 0}, {"é", 1}, {"aé", 2}}},
        {"merges", json::array({"a é"})}},
       kCorrupt,
       "adds nothing"},
      {"unk_unknown", "/model/unk_token", "<unk>", kCorrupt, "unk_token '<unk>'"},
      {"word_piece_words", "/model", word_piece(1000000000), kUnsupported, "1000000000"},
      {"unigram_unk",
       "/model",
       {{"type", "Unigram"}, {"unk_id", 9}, {"vocab", json::array({json::array({"a", -1.0})})}},
       kCorrupt,
       "unk_id"},
      {"unigram_twice",
       "/model",
       {{"type", "Unigram"},
        {"unk_id", 0},
        {"vocab", json::array({json::array({"a", -1.0}), json::array({"a", -2.0})})}},
       kCorrupt,
       "twice"},
      {"added_not_list", "/added_tokens", 5, kCorrupt, "invalid type"},
      {"added_missing_field", "/added_tokens/0", {{"id", 3}, {"content", "<s>"}}, kCorrupt, "missing field"},
      {"added_twice", "/added_tokens", json::array({added(3, "x"), added(3, "x")}), kCorrupt, "taken"},
      {"added_same_id", "/added_tokens", json::array({added(3, "x"), added(3, "y")}), kCorrupt, "taken"},
      {"added_empty", "/added_tokens/0/content", "", kCorrupt, "0 bytes"},
      {"added_long", "/added_tokens/0/content", std::string(5000, 'x'), kCorrupt, "5000 bytes"},
      {"added_other_id", "/added_tokens/0/id", 7, kCorrupt, "declares id 7, but gets id 3"},
      {"added_id_of_another", "/added_tokens/0/id", 0, kCorrupt, "declares id 0"},
      {"added_moves_a_token", "/added_tokens/0", added(9, "ab"), kCorrupt, "declares id 9, but gets id 2"},
      {"added_huge_id", "/added_tokens/0/id", 4294967295u, kCorrupt, "4294967295"},
      {"normalizer_unknown", "/normalizer", {{"type", "Romanise"}}, kUnsupported, "normalizer 'Romanise'"},
      {"normalizer_precompiled",
       "/normalizer",
       {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}},
       kUnsupported,
       "Precompiled"},
      {"normalizer_no_type", "/normalizer", json::object(), kCorrupt, "no type"},
      {"normalizer_text", "/normalizer", "NFC", kCorrupt, "not an object"},
      {"normalizer_growth", "/normalizer", many("normalizers", replace("a", "aaaaaaaaaaaaaaaa"), 3), kCorrupt,
       "4096 times longer"},
      {"normalizer_long_content", "/normalizer", replace("a", std::string(1000, 'a')), kCorrupt, "1000 bytes"},
      {"normalizer_long_prefix",
       "/normalizer",
       {{"type", "Prepend"}, {"prepend", std::string(1000, 'a')}},
       kCorrupt,
       "1000 bytes"},
      {"normalizer_large", "/normalizer", replace("a", std::string(300000, 'a')), kUnsupported, "the limit is 262144"},
      {"normalizer_nested", "/normalizer", nested("normalizers", 6), kCorrupt, "nested"},
      {"normalizer_many", "/normalizer", many("normalizers", {{"type", "NFC"}}, 50), kCorrupt, "components"},
      {"normalizer_no_list", "/normalizer", {{"type", "Sequence"}}, kCorrupt, "normalizers"},
      {"normalizer_bad_regex",
       "/normalizer",
       {{"type", "Replace"}, {"pattern", {{"Regex", "("}}}, {"content", ""}},
       kCorrupt,
       "regular expression"},
      {"pre_unknown",
       "/pre_tokenizer",
       {{"type", "FixedLength"}, {"length", 0}},
       kUnsupported,
       "pre_tokenizer 'FixedLength'"},
      {"pre_growth", "/pre_tokenizer", many("pretokenizers", byte_level(), 20), kCorrupt, "times longer"},
      {"pre_nested", "/pre_tokenizer", nested("pretokenizers", 6), kCorrupt, "nested"},
      {"pre_behavior",
       "/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Melted"}, {"invert", false}},
       kCorrupt,
       "pre_tokenizer"},
      {"pre_pattern",
       "/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Glob", "a"}}}, {"behavior", "Isolated"}},
       kCorrupt,
       "pattern"},
      {"pre_long_regex", "/pre_tokenizer", split(std::string(5000, 'a')), kUnsupported, "5000 bytes"},
      {"pre_deep_regex", "/pre_tokenizer", split(deep_group), kUnsupported, "6001 bytes"},
      {"pre_nested_regex", "/pre_tokenizer", split(deep_group.substr(2000, 2001)), kCorrupt, "regular expression"},
      {"pre_large_regex", "/pre_tokenizer", split("((a{1000}){1000}){1000}"), kCorrupt, "regular expression"},
      {"pre_metaspace", "/pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "ab"}}, kCorrupt, "pre_tokenizer"},
      {"post_unknown", "/post_processor", {{"type", "Crown"}}, kUnsupported, "post_processor 'Crown'"},
      {"post_nested", "/post_processor", nested("processors", 6), kCorrupt, "nested"},
      {"post_many_pieces", "/post_processor", template_of(1000, special_tokens(3, 1)), kCorrupt, "1001 pieces"},
      {"post_many_ids", "/post_processor", template_of(1, special_tokens(3, 1000)), kCorrupt, "1000 ids"},
      {"post_foreign_id", "/post_processor", template_of(1, special_tokens(77, 1)), kCorrupt, "id 77"},
      {"post_unknown_token", "/post_processor", template_of(1, json::object()), kCorrupt, ""},
      {"post_roberta", "/post_processor", {{"type", "RobertaProcessing"}, {"sep", 5}}, kCorrupt, "post_processor"},
      {"decoder_unknown", "/decoder", {{"type", "CTC"}}, kUnsupported, "decoder 'CTC'"},
      {"decoder_regex",
       "/decoder",
       {{"type", "Replace"}, {"pattern", {{"Regex", "a"}}}, {"content", ""}},
       kUnsupported,
       "Regex"},
      {"decoder_empty", "/decoder", replace("", "x"), kCorrupt, "empty pattern"},
      {"decoder_strip",
       "/decoder",
       {{"type", "Strip"}, {"content", " "}, {"start", 0}, {"stop", 1}},
       kUnsupported,
       "stop 1"},
      {"decoder_strip_text",
       "/decoder",
       {{"type", "Strip"}, {"content", "ab"}, {"start", 0}, {"stop", 0}},
       kCorrupt,
       "one character"},
      {"decoder_growth", "/decoder", many("decoders", replace("a", "aaaaaaaaaaaaaaaa"), 3), kCorrupt,
       "4096 times longer"},
      {"decoder_nested", "/decoder", nested("decoders", 6), kCorrupt, "nested"},
  };
}

class Hostile : public ::testing::TestWithParam<Case> {};

TEST_P(Hostile, EndsInAClearError) {
  json file = small();
  ASSERT_NO_THROW(Tokenizer::from_json(file.dump()));
  if (GetParam().value.is_null()) {
    file.erase(std::string(GetParam().where).substr(1));
  } else {
    file[json::json_pointer(GetParam().where)] = GetParam().value;
  }
  try {
    Tokenizer::from_json(file.dump());
    FAIL() << "was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(to_string(e.code()), to_string(GetParam().code)) << e.what();
    EXPECT_THAT(e.what(), HasSubstr(GetParam().message));
    EXPECT_THAT(e.what(), ::testing::Not(HasSubstr("\n")));
    EXPECT_LT(std::string(e.what()).size(), 500u);
  }
}

INSTANTIATE_TEST_SUITE_P(Json, Hostile, ::testing::ValuesIn(cases()), [](const auto& info) { return info.param.name; });

ErrorCode code_of_text(const std::string& text) {
  try {
    Tokenizer::from_json(text);
  } catch (const Error& e) {
    return e.code();
  }
  return ErrorCode::kInternal;
}

TEST(HostileText, ThatIsNoTokenizer) {
  for (const std::string text : {"", " ", "null", "[]", "{}", "{", "\"", "tokenizer", "{\"model\":", "\xFF\xFE",
                                 "{\"model\":{}}", "{\"model\":{\"type\":\"BPE\"}}", "{\"version\":\"1.0\"}"}) {
    EXPECT_EQ(code_of_text(text), kCorrupt) << text;
  }
  EXPECT_EQ(code_of_text(small().dump() + "x"), kCorrupt);
  EXPECT_EQ(code_of_text(std::string(1000000, '[')), kCorrupt);
  EXPECT_EQ(code_of_text(R"({"x":)" + std::string(100000, '[') + std::string(100000, ']') + "}"), kCorrupt);
  EXPECT_EQ(code_of_text(R"({"model":)" + std::string(1000000, '{')), kCorrupt);
}

TEST(HostileText, TwoValuesForOneKey) {
  EXPECT_EQ(code_of_text(R"({"model":{"type":"BPE","vocab":{"a":0,"a":1},"merges":[]}})"), kCorrupt);
  EXPECT_EQ(code_of_text(R"({"model":{"type":"BPE","vocab":{},"vocab":{},"merges":[]}})"), kCorrupt);
  EXPECT_EQ(code_of_text(R"({"model":{"type":"BPE","vocab":{},"merges":[]},"model":{}})"), kCorrupt);
}

TEST(HostileText, UnpairedSurrogatesAndBadBytesInTokens) {
  EXPECT_EQ(code_of_text(R"({"model":{"type":"BPE","vocab":{"\ud800":0},"merges":[]}})"), kCorrupt);
  EXPECT_EQ(code_of_text("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\xC3(\":0},\"merges\":[]}}"), kCorrupt);
}

TEST(HostileText, CutAnywhere) {
  const std::string whole = read_text(data_path("tiny_tokenizer.json"));
  for (size_t size = 0; size + 1 < whole.size(); size += 61) EXPECT_EQ(code_of_text(whole.substr(0, size)), kCorrupt);
}

TEST(HostileText, BytesChangedAtRandom) {
  std::mt19937 random(5);
  for (const char* name : {"tiny_tokenizer.json", "tiny_byte_fallback.json"}) {
    const std::string whole = read_text(data_path(name));
    for (int round = 0; round < 400; ++round) {
      std::string text = whole;
      for (int i = 0; i < 3; ++i) text[random() % text.size()] = "\"{}[]:,0129aZ\\ \xC3"[random() % 16];
      SCOPED_TRACE(round);
      (void)fuzz_tokenizer_json(text);
    }
  }
}

TEST(HostileRegex, ThatBacktracksForeverGivesUp) {
  json file = small();
  file["pre_tokenizer"] = split(R"((a*)*\1b\1c)");
  const Tokenizer tokenizer = Tokenizer::from_json(file.dump());
  EXPECT_EQ(tokenizer.encode("ab").size(), 1u);
  try {
    tokenizer.encode(std::string(200, 'a'));
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(e.what(), HasSubstr("gave up"));
  }
}

TEST(HostileRegex, ThatMatchesNothingEverywhere) {
  json file = small();
  for (const char* pattern : {"", "x*", "(?=a)", R"(\b)", "(?<=a)"}) {
    file["pre_tokenizer"] = split(pattern);
    const Tokenizer tokenizer = Tokenizer::from_json(file.dump());
    const auto ids = tokenizer.encode("abab");
    EXPECT_EQ(tokenizer.decode(ids).find('b') != std::string::npos, true) << pattern;
  }
}

TEST(HostileFile, ThatMakesTextsLongerTakesShorterOnes) {
  json file = small();
  file["normalizer"] = many("normalizers", replace("a", "aaaaaaaaaaaaaaa"), 2);  // 225 times; 32 MiB / 225 = 149130
  const Tokenizer tokenizer = Tokenizer::from_json(file.dump());
  EXPECT_EQ(tokenizer.encode("a").size(), 225u);
  EXPECT_THROW(tokenizer.encode(std::string(149131, 'b')), Error);
  EXPECT_EQ(tokenizer.encode(std::string(149130, 'b')).size(), 149130u);
}

TEST(HostileFile, WhoseTokensAreLongDecodesFewerOfThem) {
  json file = small();
  file["model"]["vocab"].erase("b");
  file["model"]["vocab"][std::string(16000, 'x')] = 1;
  file["model"]["merges"] = json::array();
  const Tokenizer tokenizer = Tokenizer::from_json(file.dump());
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>(100, 1)).size(), 100u * 16001u - 1u);
  EXPECT_THROW(tokenizer.decode(std::vector<TokenId>(100000, 1)), Error);
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>(100000, 0)).size(), 199999u);
}

TEST(HostileFile, TrainingSettingsAreIgnored) {
  json file = small();
  const auto ids = Tokenizer::from_json(file.dump()).encode("abababab");
  ASSERT_EQ(ids.size(), 4u);
  file["model"]["dropout"] = 0.9;
  file["truncation"] = {{"direction", "Right"}, {"max_length", 1}, {"strategy", "LongestFirst"}, {"stride", 0}};
  file["padding"] = {{"strategy", {{"Fixed", 1000000000}}},
                     {"direction", "Right"},
                     {"pad_to_multiple_of", nullptr},
                     {"pad_id", 0},
                     {"pad_type_id", 0},
                     {"pad_token", "a"}};
  EXPECT_EQ(Tokenizer::from_json(file.dump()).encode("abababab"), ids);
}

}  // namespace
}  // namespace spyre::text
