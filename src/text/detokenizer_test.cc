#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "base/error.h"
#include "text/test_data.h"

namespace spyre::text {
namespace {

using testing::data_path;
using testing::ids_of;
using testing::read_json;
using testing::read_text;

bool is_utf8(std::string_view text) {
  try {
    nlohmann::json(std::string(text)).dump();  // strict
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip_special,
                     const std::vector<TokenId>& prompt = {}) {
  Detokenizer detokenizer(tokenizer, skip_special);
  detokenizer.follow(prompt);
  std::string all;
  for (const TokenId id : ids) {
    const std::string_view piece = detokenizer.push(id);
    EXPECT_TRUE(is_utf8(piece)) << "half a character after " << all;
    all += piece;
  }
  all += detokenizer.finish();
  return all;
}

// A vocabulary of words, pieces, marks and bytes, with the given decoder.
Tokenizer with_decoder(const nlohmann::json& decoder) {
  nlohmann::json vocab = nlohmann::json::object();
  int id = 0;
  for (const char* token :
       {"<unk>", "hello", "▁hello", "▁",      "##ly",   "##",     "wor",    "ld</w>", "</w>",   " .",
        ".",     " n't",  "do not", "<0xE4>", "<0xBD>", "<0xA0>", "<0x41>", "<0x0A>", "<0xFF>", "<0xzz>",
        "é",     "世界",  "Ġa",     "Ã",      "©",      " ",      "  x",    "▁▁",     "<end>",  "a b"}) {
    vocab[token] = id++;
  }
  nlohmann::json added = nlohmann::json::array();
  added.push_back({{"id", 28},
                   {"content", "<end>"},
                   {"single_word", false},
                   {"lstrip", false},
                   {"rstrip", false},
                   {"normalized", false},
                   {"special", true}});
  return Tokenizer::from_json(
      nlohmann::json{{"version", "1.0"},
                     {"added_tokens", added},
                     {"decoder", decoder},
                     {"model", {{"type", "WordLevel"}, {"unk_token", "<unk>"}, {"vocab", vocab}}}}
          .dump());
}

const nlohmann::json kReplace = {{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}};
const nlohmann::json kReplaceTwo = {{"type", "Replace"}, {"pattern", {{"String", "do"}}}, {"content", "DO"}};
const nlohmann::json kStrip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
const nlohmann::json kByteFallback = {{"type", "ByteFallback"}};
const nlohmann::json kFuse = {{"type", "Fuse"}};
const nlohmann::json kByteLevel = {
    {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
const nlohmann::json kMetaspace = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}};
const nlohmann::json kMetaspaceNever = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "never"}};
const nlohmann::json kWordPiece = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
const nlohmann::json kWordPieceRaw = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", false}};
const nlohmann::json kBpe = {{"type", "BPEDecoder"}, {"suffix", "</w>"}};

nlohmann::json sequence(const std::vector<nlohmann::json>& parts) {
  return {{"type", "Sequence"}, {"decoders", parts}};
}

std::vector<nlohmann::json> decoders() {
  return {nullptr, kReplace, kStrip, kByteFallback, kFuse, kByteLevel, kMetaspace, kMetaspaceNever, kWordPiece,
          kWordPieceRaw, kBpe, sequence({}), sequence({kReplace, kByteFallback, kFuse}),  // Gemma
          sequence({kReplace, kByteFallback, kFuse, kStrip}),                             // Llama 2
          sequence({kByteFallback, kMetaspace}), sequence({kMetaspace, kByteFallback, kStrip}),
          sequence({kBpe, kWordPiece}), sequence({kWordPiece, kByteFallback}),
          sequence({kFuse, kReplace, kMetaspace, kStrip, kWordPieceRaw, kFuse}), sequence({kByteLevel, kStrip}),
          sequence({sequence({kReplace}), sequence({kByteFallback, kBpe})}),
          // What these do to the joined text cannot be known before its end.
          sequence({kFuse, kByteFallback}), sequence({kFuse, kReplaceTwo}), sequence({kFuse, kWordPiece}),
          sequence({kFuse, kByteLevel}), sequence({kByteLevel, kBpe})};
}

TEST(Detokenizer, StreamEqualsOneShotForEveryDecoder) {
  std::mt19937 random(20240607);
  for (const auto& decoder : decoders()) {
    SCOPED_TRACE(decoder.dump());
    const Tokenizer tokenizer = with_decoder(decoder);
    for (int round = 0; round < 200; ++round) {
      std::vector<TokenId> ids(random() % 12);
      for (auto& id : ids) id = static_cast<TokenId>(random() % 31);  // one id is out of the vocabulary
      // Half of the rounds are mostly bytes, so that characters get finished.
      if (round % 2 == 1) {
        for (auto& id : ids) id = random() % 8 == 0 ? id : 13 + static_cast<TokenId>(random() % 6);
      }
      for (const bool skip : {false, true}) {
        ASSERT_EQ(streamed(tokenizer, ids, skip), tokenizer.decode(ids, skip)) << ::testing::PrintToString(ids);
      }
    }
  }
}

// An answer goes on where its prompt ends: together they decode to both texts, one after the other.
TEST(Detokenizer, AnAnswerFollowsItsPrompt) {
  std::mt19937 random(20261201);
  const std::vector<std::vector<TokenId>> prompts = {{1}, {2}, {28, 2}, {3}, {28, 3, 8}, {25, 26, 21}, {28}, {}};
  for (const auto& decoder :
       {nlohmann::json(nullptr), kByteLevel, kMetaspace, kMetaspaceNever, kWordPiece, kWordPieceRaw,
        sequence({kReplace, kByteFallback, kFuse}), sequence({kReplace, kByteFallback, kFuse, kStrip}),
        sequence({kByteLevel, kStrip}), sequence({kFuse, kByteFallback}), sequence({kFuse, kReplaceTwo})}) {
    SCOPED_TRACE(decoder.dump());
    const Tokenizer tokenizer = with_decoder(decoder);
    for (const std::vector<TokenId>& prompt : prompts)
      for (int round = 0; round < 60; ++round) {
        std::vector<TokenId> ids(1 + random() % 6);
        for (auto& id : ids) id = static_cast<TokenId>(random() % 30);
        for (const bool skip : {false, true}) {
          std::vector<TokenId> both = prompt;
          both.insert(both.end(), ids.begin(), ids.end());
          const std::string before = tokenizer.decode(prompt, skip), all = tokenizer.decode(both, skip);
          ASSERT_TRUE(all.starts_with(before)) << all;
          ASSERT_EQ(streamed(tokenizer, ids, skip, prompt), all.substr(before.size()))
              << ::testing::PrintToString(both);
        }
      }
  }
}

// The same in a vocabulary of Llama 2's kind; a prompt's last bytes are no part of the answer.
TEST(Detokenizer, ThePromptIsNotHeld) {
  const Tokenizer tokenizer = with_decoder(sequence({kReplace, kByteFallback, kFuse, kStrip}));
  EXPECT_EQ(streamed(tokenizer, {2}, true), "hello");
  EXPECT_EQ(streamed(tokenizer, {2}, true, {1}), " hello");
  EXPECT_EQ(streamed(tokenizer, {2}, true, {13, 14}), " hello");
  EXPECT_EQ(streamed(tokenizer, {2}, true, {16}), " hello");
  Detokenizer again(tokenizer);
  again.follow(std::vector<TokenId>{1});
  again.push(2);
  again.finish();
  EXPECT_EQ(again.push(2), "hello") << "as new";
}

class DetokenizerOf : public ::testing::TestWithParam<const char*> {};

TEST_P(DetokenizerOf, RandomIds) {
  const Tokenizer tokenizer = Tokenizer::from_json(read_text(data_path(GetParam())));
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    std::vector<TokenId> ids(random() % 40);
    // A third of the rounds draws from the first ids only: there are the bytes.
    const TokenId range = round % 3 == 0 ? 260 : tokenizer.vocab_size() + 2;
    for (auto& id : ids) id = static_cast<TokenId>(random() % range);
    for (const bool skip : {false, true}) {
      ASSERT_EQ(streamed(tokenizer, ids, skip), tokenizer.decode(ids, skip)) << ::testing::PrintToString(ids);
    }
  }
}

TEST_P(DetokenizerOf, Texts) {
  const Tokenizer tokenizer = Tokenizer::from_json(read_text(data_path(GetParam())));
  for (const auto& row : read_json("tokens_tiny.json")) {
    const auto ids = tokenizer.encode(row.at("text").get<std::string>(), {.add_special = true, .parse_special = true});
    EXPECT_EQ(streamed(tokenizer, ids, false), tokenizer.decode(ids, false)) << row.dump();
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, DetokenizerOf, ::testing::Values("tiny_tokenizer.json", "tiny_byte_fallback.json"));

// The ids of the single bytes of `text` in the byte-level tokenizer.
std::vector<TokenId> byte_ids(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> ids;
  for (const char byte : text) {
    for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
      if (tokenizer.token_bytes(id) == std::string_view(&byte, 1)) {
        ids.push_back(id);
        break;
      }
    }
  }
  return ids;
}

TEST(Detokenizer, HoldsACharacterUntilItIsWhole) {
  const Tokenizer tokenizer = Tokenizer::from_json(read_text(data_path("tiny_tokenizer.json")));
  Detokenizer detokenizer(tokenizer);
  const auto ids = byte_ids(tokenizer, "😀a");
  ASSERT_EQ(ids.size(), 5u);
  EXPECT_EQ(detokenizer.push(ids[0]), "");
  EXPECT_EQ(detokenizer.push(ids[1]), "");
  EXPECT_EQ(detokenizer.push(ids[2]), "");
  EXPECT_EQ(detokenizer.push(ids[3]), "😀");
  EXPECT_EQ(detokenizer.push(ids[4]), "a");
  // Three of four bytes, then the end: one mark, as one-shot decoding has it; then the object is as new.
  for (int i = 0; i < 3; ++i) EXPECT_EQ(detokenizer.push(ids[i]), "");
  EXPECT_EQ(detokenizer.finish(), "\uFFFD");
  EXPECT_EQ(detokenizer.finish(), "");
  EXPECT_EQ(detokenizer.push(ids[4]), "a");
}

TEST(Detokenizer, BadBytesShowAtOnce) {
  const Tokenizer tokenizer = Tokenizer::from_json(read_text(data_path("tiny_tokenizer.json")));
  Detokenizer detokenizer(tokenizer);
  const auto ids = byte_ids(tokenizer, "\xFF\xE4\x62");
  EXPECT_EQ(detokenizer.push(ids[0]), "\uFFFD");
  EXPECT_EQ(detokenizer.push(ids[1]), "");
  EXPECT_EQ(detokenizer.push(ids[2]),
            "\uFFFD"
            "b");
}

TEST(Detokenizer, ARunOfByteTokensIsAllOrNothing) {
  const Tokenizer tokenizer = with_decoder(sequence({kReplace, kByteFallback, kFuse}));
  const auto id = [&](const char* token) { return *tokenizer.token_to_id(token); };
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.push(id("<0x41>")), "");  // a later bad byte would turn it into U+FFFD
  EXPECT_EQ(detokenizer.push(id("hello")), "Ahello");
  EXPECT_EQ(detokenizer.push(id("<0x41>")), "");
  EXPECT_EQ(detokenizer.push(id("<0xFF>")), "\uFFFD\uFFFD");
  EXPECT_EQ(detokenizer.push(id("<0x41>")), "\uFFFD");
  EXPECT_EQ(detokenizer.push(id("▁hello")), " hello");
}

TEST(Detokenizer, SkipsSpecialTokensOnRequest) {
  const Tokenizer tokenizer = Tokenizer::from_json(read_text(data_path("tiny_tokenizer.json")));
  const auto ids = tokenizer.encode("<|im_start|>hi<|im_end|>", {.add_special = true, .parse_special = true});
  EXPECT_EQ(streamed(tokenizer, ids, true), "hi");
  EXPECT_EQ(streamed(tokenizer, ids, false), "<|bos|><|im_start|>hi<|im_end|>");
}

TEST(Detokenizer, OutlivesItsTokenizerAndMoves) {
  std::optional<Tokenizer> tokenizer = Tokenizer::from_json(read_text(data_path("tiny_tokenizer.json")));
  const auto ids = tokenizer->encode("hello", {.add_special = false});
  Detokenizer first(*tokenizer);
  tokenizer.reset();
  Detokenizer second = std::move(first);
  std::string text;
  for (const TokenId id : ids) text += second.push(id);
  EXPECT_EQ(text, "hello");
  EXPECT_THROW(second.push(-1), Error);
}

TEST(Detokenizer, LongStream) {
  const Tokenizer tokenizer = with_decoder(sequence({kReplace, kByteFallback, kFuse}));
  Detokenizer detokenizer(tokenizer);
  size_t bytes = 0;
  constexpr int kTokens = 300000;
  for (int i = 0; i < kTokens; ++i) bytes += detokenizer.push(*tokenizer.token_to_id("<0x41>")).size();
  EXPECT_EQ(bytes, 0u);
  EXPECT_EQ(detokenizer.finish().size(), size_t{kTokens});
}

}  // namespace
}  // namespace spyre::text
