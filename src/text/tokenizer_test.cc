#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "formats/gguf.h"
#include "text/test_data.h"

namespace spyre::text {
namespace {

using testing::data_path;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ids_of;
using testing::read_json;
using testing::read_text;

constexpr EncodeOptions kBare{.add_special = false, .parse_special = true};
constexpr EncodeOptions kPlain{.add_special = false, .parse_special = false};
constexpr EncodeOptions kFramed{.add_special = true, .parse_special = true};

Tokenizer tiny(const TokenizerConfig& config = {}) {
  return Tokenizer::from_json(read_text(data_path("tiny_tokenizer.json")), config);
}

template <typename F>
Error error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "no error";
  return Error(ErrorCode::kInternal, "");
}

struct Fixture {
  std::string tokenizer, expected;
};

class AgainstThePythonPackage : public ::testing::TestWithParam<Fixture> {};

TEST_P(AgainstThePythonPackage, EveryStringGivesTheSameIdsAndText) {
  const Tokenizer tokenizer = Tokenizer::from_json(read_text(data_path(GetParam().tokenizer)));
  const nlohmann::json rows = read_json(GetParam().expected);
  ASSERT_GE(rows.size(), 60u);
  for (const auto& row : rows) {
    const std::string text = row.at("text");
    SCOPED_TRACE(row.dump());
    EXPECT_EQ(tokenizer.encode(text, kBare), ids_of(row, "ids"));
    EXPECT_EQ(tokenizer.encode(text, kPlain), ids_of(row, "plain"));
    EXPECT_EQ(tokenizer.encode(text, kFramed), ids_of(row, "framed"));
    EXPECT_EQ(tokenizer.decode(ids_of(row, "ids"), false), row.at("decoded").get<std::string>());
    EXPECT_EQ(tokenizer.decode(ids_of(row, "ids"), true), row.at("skipped").get<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, AgainstThePythonPackage,
                         ::testing::Values(Fixture{"tiny_tokenizer.json", "tokens_tiny.json"},
                                           Fixture{"tiny_byte_fallback.json", "tokens_tiny_byte_fallback.json"}));

TEST(Tokenizer, GgufOfSmolLm2GivesTheReferenceIds) {
  const auto path = testing::smollm2_gguf();
  if (path.empty()) GTEST_SKIP() << testing::kNoModel;
  const auto file = formats::GgufFile::open(path);
  const Tokenizer tokenizer = Tokenizer::from_gguf(*file);
  const nlohmann::json rows = read_json("tokens_smollm2.json");
  ASSERT_EQ(rows.size(), 48u);
  for (const auto& row : rows) {
    SCOPED_TRACE(row.at("text").dump());
    EXPECT_EQ(tokenizer.encode(row.at("text").get<std::string>(), kFramed), ids_of(row, "ids"));
    EXPECT_EQ(tokenizer.encode(row.at("text").get<std::string>(), kPlain), ids_of(row, "ids_no_special"));
    EXPECT_EQ(tokenizer.decode(ids_of(row, "ids"), false), row.at("text").get<std::string>());
  }
  EXPECT_EQ(tokenizer.vocab_size(), 49152);
  EXPECT_EQ(tokenizer.bos_id(), 1);
  EXPECT_THAT(tokenizer.eos_ids(), ElementsAre(2));
  EXPECT_EQ(tokenizer.special_ids().size(), 17u);
  EXPECT_EQ(tokenizer.token_to_id("<|im_end|>"), 2);
  // A character newer than some Unicode tables: here the reference library decides.
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("\U00013661's")), "\U00013661's");
}

TEST(Tokenizer, FolderAndGgufOfOneModelAgree) {
  const auto path = testing::smollm2_gguf();
  const auto folder = path.parent_path() / "smollm2-135m-instruct-hf";
  if (path.empty() || !std::filesystem::exists(folder)) GTEST_SKIP() << testing::kNoModel << " with its HF folder";
  const Tokenizer from_gguf = Tokenizer::from_gguf(*formats::GgufFile::open(path));
  const Tokenizer from_folder = Tokenizer::from_model_dir(folder);
  for (const auto& row : read_json("tokens_tiny.json")) {
    const std::string text = row.at("text");
    EXPECT_EQ(from_gguf.encode(text, kFramed), from_folder.encode(text, kFramed)) << row.at("text").dump();
  }
  EXPECT_EQ(from_gguf.eos_ids(), from_folder.eos_ids());
  EXPECT_EQ(from_gguf.bos_id(), from_folder.bos_id());
}

TEST(Tokenizer, SpecialTokensOfUsersAreTextUnlessAsked) {
  const Tokenizer tokenizer = tiny();
  const std::string text = "<|im_end|>";
  EXPECT_THAT(tokenizer.encode(text, kBare), ElementsAre(3));
  const auto plain = tokenizer.encode(text, kPlain);
  EXPECT_GT(plain.size(), 3u);
  for (const TokenId id : plain) EXPECT_FALSE(tokenizer.is_special(id)) << id;
  EXPECT_EQ(tokenizer.decode(plain), text);
  // Added tokens that are not special are found either way.
  EXPECT_EQ(tokenizer.encode("<tool>", kPlain), tokenizer.encode("<tool>", kBare));
  // The default for text of unknown origin is the safe one.
  EXPECT_EQ(tokenizer.encode(text, {.add_special = false}), plain);
}

TEST(Tokenizer, PlainTextNeverGivesASpecialTokenEvenWhereTheVocabularyHoldsIt) {
  const char* json = R"({"version":"1.0","pre_tokenizer":{"type":"WhitespaceSplit"},
    "added_tokens":[{"id":1,"content":"STOP","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,
                     "special":true}],
    "model":{"type":"WordLevel","unk_token":"?","vocab":{"?":0,"STOP":1,"go":2}}})";
  const Tokenizer tokenizer = Tokenizer::from_json(json);
  EXPECT_THAT(tokenizer.encode("go STOP", kBare), ElementsAre(2, 1));
  EXPECT_THAT(tokenizer.encode("go stop", kPlain), ElementsAre(2, 0));
  EXPECT_EQ(error_of([&] { tokenizer.encode("go STOP", kPlain); }).code(), ErrorCode::kInvalidArgument);
}

TEST(Tokenizer, BosIsNeverDoubled) {
  const Tokenizer tokenizer = tiny({.bos_token = "<|bos|>"});
  const TokenId bos = *tokenizer.bos_id();
  const auto once = tokenizer.encode("x", kFramed);
  EXPECT_THAT(once, ElementsAre(bos, ::testing::_));
  EXPECT_EQ(tokenizer.encode("<|bos|>x", kFramed), once);
  EXPECT_THAT(tokenizer.encode("", kFramed), ElementsAre(bos));
  // Two that the text really has stay two, and text that is not parsed stays text.
  EXPECT_EQ(tokenizer.encode("<|bos|><|bos|>x", kFramed).size(), 3u);
  EXPECT_GT(tokenizer.encode("<|bos|>x", {.add_special = true, .parse_special = false}).size(), 4u);
}

TEST(Tokenizer, ConfiguredBosIsAddedWithoutAPostProcessor) {
  nlohmann::json json = read_json("tiny_tokenizer.json");
  json["post_processor"] = nullptr;
  const TokenizerConfig config{.bos_token = "<|bos|>", .eos_tokens = {"<|im_end|>"}, .add_bos = true};
  const Tokenizer tokenizer = Tokenizer::from_json(json.dump(), config);
  EXPECT_EQ(tokenizer.encode("x", kFramed), tiny().encode("x", kFramed));
  EXPECT_EQ(tokenizer.encode("<|bos|>x", kFramed), tokenizer.encode("x", kFramed));
  EXPECT_EQ(tokenizer.encode("x", kBare).size(), 1u);
  EXPECT_THAT(tokenizer.eos_ids(), ElementsAre(3));
  EXPECT_EQ(error_of([&] { tiny({.add_bos = true}); }).code(), ErrorCode::kCorruptData);
  EXPECT_THAT(error_of([&] { tiny({.bos_token = "<nope>"}); }).what(), HasSubstr("\"<nope>\""));
}

TEST(Tokenizer, BytesOfTokensJoinToTheText) {
  const Tokenizer tokenizer = tiny();
  for (const auto& row : read_json("tokens_tiny.json")) {
    std::string bytes;
    for (const TokenId id : ids_of(row, "ids")) bytes += tokenizer.token_bytes(id);
    EXPECT_EQ(bytes, row.at("decoded").get<std::string>()) << row.dump();
  }
  // True bytes, not U+FFFD: the single-byte tokens give all 256.
  std::vector<bool> seen(256);
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string bytes = tokenizer.token_bytes(id);
    if (bytes.size() == 1) seen[static_cast<unsigned char>(bytes[0])] = true;
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 256);
}

TEST(Tokenizer, BytesOfByteFallbackTokens) {
  const Tokenizer tokenizer = Tokenizer::from_json(read_text(data_path("tiny_byte_fallback.json")));
  EXPECT_EQ(tokenizer.token_bytes(*tokenizer.token_to_id("<0xC3>")), "\xC3");
  EXPECT_EQ(tokenizer.token_bytes(*tokenizer.token_to_id("<0x00>")), std::string(1, '\0'));
  EXPECT_EQ(tokenizer.token_bytes(*tokenizer.token_to_id("▁")), " ");
  EXPECT_EQ(tokenizer.token_bytes(*tokenizer.token_to_id("</s>")), "</s>");
}

TEST(Tokenizer, IdsOutOfRange) {
  const Tokenizer tokenizer = tiny();
  EXPECT_EQ(tokenizer.vocab_size(), 502);
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{5000, 100000000}), "");
  EXPECT_EQ(tokenizer.token_to_id("no such token"), std::nullopt);
  EXPECT_THAT(error_of([&] { tokenizer.token_bytes(502); }).what(), HasSubstr("token id 502"));
  EXPECT_EQ(error_of([&] { tokenizer.decode(std::vector<TokenId>{-1}); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { tokenizer.token_bytes(-1); }).code(), ErrorCode::kInvalidArgument);
}

TEST(Tokenizer, TextThatIsNotUtf8IsRefusedWithItsOffset) {
  const Tokenizer tokenizer = tiny();
  const Error e = error_of([&] { tokenizer.encode("good \xC3("); });
  EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(e.what(), HasSubstr("offset 5"));
  EXPECT_EQ(error_of([&] { tokenizer.encode(std::string((4 << 20) + 1, 'a')); }).code(), ErrorCode::kInvalidArgument);
}

TEST(Tokenizer, ManyThreadsShareOne) {
  const Tokenizer tokenizer = tiny();
  const nlohmann::json rows = read_json("tokens_tiny.json");
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (const auto& row : rows) {
        wrong += tokenizer.encode(row.at("text").get<std::string>(), kBare) != ids_of(row, "ids");
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

class ModelFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              (std::string("spyre_text_") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) { std::ofstream(folder_ / name) << text; }
  std::filesystem::path folder_;
};

TEST_F(ModelFolder, ReadsBothFiles) {
  write("tokenizer.json", read_text(data_path("tiny_tokenizer.json")));
  EXPECT_TRUE(Tokenizer::from_model_dir(folder_).eos_ids().empty());
  write("tokenizer_config.json",
        R"({"add_bos_token":true,"bos_token":{"content":"<|bos|>","lstrip":false},"eos_token":"<|im_end|>"})");
  const Tokenizer tokenizer = Tokenizer::from_model_dir(folder_);
  EXPECT_EQ(tokenizer.bos_id(), 1);
  EXPECT_THAT(tokenizer.eos_ids(), ElementsAre(3));
  EXPECT_EQ(tokenizer.encode("x", kFramed).size(), 2u);
}

TEST_F(ModelFolder, SaysWhatIsMissing) {
  const Error missing = error_of([&] { Tokenizer::from_model_dir(folder_); });
  EXPECT_EQ(missing.code(), ErrorCode::kNotFound);
  EXPECT_THAT(missing.what(), HasSubstr("no tokenizer.json"));
  write("tokenizer.model", "x");
  const Error other = error_of([&] { Tokenizer::from_model_dir(folder_); });
  EXPECT_EQ(other.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(other.what(), HasSubstr("SentencePiece"));
}

TEST_F(ModelFolder, RefusesABadConfig) {
  write("tokenizer.json", read_text(data_path("tiny_tokenizer.json")));
  for (const char* bad :
       {"", "[]", "{", R"({"bos_token":5})", R"({"add_bos_token":"yes"})", R"({"eos_token":"<nope>"})",
        R"({"bos_token":{"content":7}})", R"({"add_bos_token":true})", R"({"bos_token":["<|bos|>"]})"}) {
    write("tokenizer_config.json", bad);
    const Error e = error_of([&] { Tokenizer::from_model_dir(folder_); });
    EXPECT_EQ(e.code(), ErrorCode::kCorruptData) << bad;
    EXPECT_THAT(e.what(), ::testing::Not(HasSubstr("\n")));
  }
}

// Folders cloned without Git LFS hold pointers, of whatever file was large.
TEST_F(ModelFolder, SaysThatAFileIsAPointer) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) {
    write("tokenizer.json", read_text(data_path("tiny_tokenizer.json")));
    write("tokenizer_config.json", "{}");
    write(file, pointer);
    const Error e = error_of([&] { Tokenizer::from_model_dir(folder_); });
    EXPECT_EQ(e.code(), ErrorCode::kCorruptData);
    EXPECT_THAT(e.what(), HasSubstr(std::string(file) + " is a Git LFS pointer"));
  }
}

// What is not asked for is not kept, however much there is of it and however deep it goes.
TEST_F(ModelFolder, SkipsTheRestOfTheConfig) {
  write("tokenizer.json", read_text(data_path("tiny_tokenizer.json")));
  const std::string deep = std::string(500000, '[') + std::string(500000, ']');
  write("tokenizer_config.json",
        R"({"added_tokens_decoder":{"1":{"content":"<|bos|>","bos_token":"x"}},"deep":)" + deep +
            R"(,"bos_token":{"lstrip":[1],"content":"<|bos|>"},"eos_token":"<|im_end|>","tail":{"eos_token":[]}})");
  const Tokenizer tokenizer = Tokenizer::from_model_dir(folder_);
  EXPECT_EQ(tokenizer.bos_id(), 1);
  EXPECT_THAT(tokenizer.eos_ids(), ElementsAre(3));
}

}  // namespace
}  // namespace spyre::text
