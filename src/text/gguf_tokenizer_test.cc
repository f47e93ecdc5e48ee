#include "text/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "text/test_data.h"

namespace spyre::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_json;

constexpr EncodeOptions kBare{.add_special = false, .parse_special = true};
constexpr EncodeOptions kFramed{.add_special = true, .parse_special = true};

// The vocabulary of tiny_tokenizer.json, as a GGUF file would hold it.
GgufVocabulary tiny(const std::string& pre) {
  const nlohmann::json file = read_json("tiny_tokenizer.json");
  GgufVocabulary v{.source = "tiny.gguf", .model = "gpt2", .pre = pre};
  v.tokens.resize(502);
  v.types.assign(502, static_cast<int32_t>(GgufTokenType::kNormal));
  for (const auto& [token, id] : file["model"]["vocab"].items()) v.tokens[id.get<size_t>()] = token;
  for (const auto& added : file["added_tokens"]) {
    const size_t id = added["id"];
    v.tokens[id] = added["content"];
    v.types[id] =
        static_cast<int32_t>(added["special"].get<bool>() ? GgufTokenType::kControl : GgufTokenType::kUserDefined);
  }
  for (const auto& merge : file["model"]["merges"]) {
    v.merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  v.bos = 1;
  v.eos = 3;
  return v;
}

Error error_of(const GgufVocabulary& v) {
  try {
    Tokenizer::from_gguf(v);
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "no error";
  return Error(ErrorCode::kInternal, "");
}

TEST(GgufTokenizer, EveryNamedPipelineGivesTheReferenceIds) {
  const nlohmann::json rows = read_json("tokens_tiny.json");
  const nlohmann::json by_name = read_json("tokens_tiny_gguf.json");
  ASSERT_EQ(by_name.size(), 4u);
  for (const auto& [pre, expected] : by_name.items()) {
    const Tokenizer tokenizer = Tokenizer::from_gguf(tiny(pre));
    ASSERT_EQ(expected.size(), rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(tokenizer.encode(rows[i].at("text").get<std::string>(), kBare), expected[i].get<std::vector<TokenId>>())
          << pre << ": " << rows[i].at("text").dump();
    }
  }
}

TEST(GgufTokenizer, NamesThatShareAPipeline) {
  const std::string text = "it's 2024, isn't IT?\n\n  cafe\u0301 12345";
  const auto ids = [&](const char* pre) { return Tokenizer::from_gguf(tiny(pre)).encode(text, kBare); };
  for (const char* pre : {"", "default", "phi-2"}) EXPECT_EQ(ids(pre), ids("gpt-2")) << pre;
  for (const char* pre : {"starcoder", "refact"}) EXPECT_EQ(ids(pre), ids("smollm")) << pre;
  for (const char* pre : {"llama3", "llama-v3"}) EXPECT_EQ(ids(pre), ids("llama-bpe")) << pre;
  EXPECT_EQ(ids("deepseek-r1-qwen"), ids("qwen2"));
}

TEST(GgufTokenizer, BosAndEosAsTheFileSays) {
  GgufVocabulary v = tiny("smollm");
  EXPECT_EQ(Tokenizer::from_gguf(v).encode("x", kFramed).size(), 1u);  // a BOS id alone does not add it
  v.add_bos = true;
  v.add_eos = true;
  const auto both = Tokenizer::from_gguf(v).encode("x", kFramed);
  EXPECT_THAT(both, ElementsAre(1, ::testing::_, 3));
  EXPECT_EQ(Tokenizer::from_gguf(v).encode("<|bos|>x", kFramed), both);
  // Llama 3 adds it unless the file says no.
  v = tiny("llama-bpe");
  EXPECT_EQ(Tokenizer::from_gguf(v).encode("x", kFramed).front(), 1);
  v.add_bos = false;
  EXPECT_EQ(Tokenizer::from_gguf(v).encode("x", kFramed).size(), 1u);
  v.add_bos = true;
  v.bos.reset();
  EXPECT_THAT(error_of(v).what(), HasSubstr("bos_token_id"));
}

TEST(GgufTokenizer, EveryEndOfGeneration) {
  GgufVocabulary v = tiny("smollm");
  v.eot = 2;
  v.eom = 3;
  EXPECT_THAT(Tokenizer::from_gguf(v).eos_ids(), ElementsAre(2, 3));
  EXPECT_EQ(Tokenizer::from_gguf(v).bos_id(), 1);
}

TEST(GgufTokenizer, SpacePrefix) {
  GgufVocabulary v = tiny("gpt-2");
  const auto with_space = Tokenizer::from_gguf(v).encode(" the", kBare);
  v.add_space_prefix = true;
  EXPECT_EQ(Tokenizer::from_gguf(v).encode("the", kBare), with_space);
}

TEST(GgufTokenizer, RefusesByName) {
  const Error pre = error_of(tiny("tekken-9"));
  EXPECT_EQ(pre.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(pre.what(), HasSubstr("\"tekken-9\""));
  EXPECT_THAT(pre.what(), HasSubstr("smollm"));
  GgufVocabulary v = tiny("smollm");
  v.model = "llama";
  EXPECT_EQ(error_of(v).code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error_of(v).what(), HasSubstr("\"llama\""));
}

TEST(GgufTokenizer, RefusesAFileThatContradictsItself) {
  const auto refused = [](auto change, const char* message) {
    GgufVocabulary v = tiny("smollm");
    change(v);
    const Error e = error_of(v);
    EXPECT_EQ(e.code(), ErrorCode::kCorruptData) << e.what();
    EXPECT_THAT(e.what(), HasSubstr(message));
  };
  refused([](auto& v) { v.tokens.clear(), v.types.clear(); }, "tokens is absent");
  refused([](auto& v) { v.types.pop_back(); }, "502 tokens, but 501 token types");
  refused([](auto& v) { v.types[5] = 9; }, "token 5 has type 9");
  refused([](auto& v) { v.tokens[7] = v.tokens[8]; }, "its second id is 8");
  refused([](auto& v) { v.tokens[300] = "\xC3("; }, "");
  refused([](auto& v) { v.tokens[3] = "\xC3("; }, "");
  refused([](auto& v) { v.tokens[501] = ""; }, "0 bytes");
  refused([](auto& v) { v.merges[0] = "zzz zz"; }, "`zzz` out of vocabulary");
  refused([](auto& v) { v.merges[0] = "a"; }, "not two tokens");
  refused([](auto& v) { v.bos = 502; }, "bos_token_id is 502");
  refused([](auto& v) { v.eos = -1; }, "eos_token_id is -1");
  refused([](auto& v) { v.eot = 1LL << 40; }, "eot_token_id");
}

TEST(GgufTokenizer, TokensThatNeedEscapesInJson) {
  GgufVocabulary v{.source = "x", .model = "gpt2", .pre = "gpt-2"};
  v.tokens = {"\"", "\\", "\"\\", "a"};
  v.merges = {"\" \\"};
  v.tokens.push_back(std::string("\x01\n\0", 3));
  v.types = {1, 1, 1, 1, 4};
  const Tokenizer tokenizer = Tokenizer::from_gguf(v);
  EXPECT_THAT(tokenizer.encode("\"\\a", kBare), ElementsAre(2, 3));
  EXPECT_THAT(tokenizer.encode(v.tokens[4] + "a", kBare), ElementsAre(4, 3));
}

}  // namespace
}  // namespace spyre::text
