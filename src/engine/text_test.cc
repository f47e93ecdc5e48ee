// What a reader gets of an answer: the model is a script here, the tokenizer a real (small) one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>

#include "engine/test_rig.h"

namespace spyre::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Rig;

constexpr int32_t kTextVocab = 502, kEnd = 3, kBos = 1;  // of tiny_tokenizer.json

const text::Tokenizer& tokenizer() {
  static const text::Tokenizer tiny = [] {
    std::ifstream in(std::string(SPYRE_TEST_DATA) + "/tiny_tokenizer.json", std::ios::binary);
    return text::Tokenizer::from_json(std::string(std::istreambuf_iterator<char>(in), {}));
  }();
  return tiny;
}

const runner::testing::EchoModel& text_model() {
  static const runner::testing::EchoModel model(kTextVocab, 128);
  return model;
}

std::vector<int32_t> ids(const std::string& text) {
  return tokenizer().encode(text, {.add_special = false});
}

struct Read {
  GenerateResult result;
  std::vector<std::string> pieces;
};

// The answer of a model that says |script|.
Read read(std::vector<int32_t> script, Request request) {
  if (request.prompt_ids.empty()) request.prompt_ids = {5};
  Rig rig({.max_model_len = 120, .num_blocks = 40, .script = std::move(script), .engine = {.tokenizer = &tokenizer()}},
          text_model());
  Read out;
  out.result = generate(*rig.engine, std::move(request), [&](const OutputDelta& d) { out.pieces.push_back(d.text); });
  EXPECT_TRUE(rig.clean());
  std::string joined;
  for (const std::string& piece : out.pieces) joined += piece;
  EXPECT_EQ(joined, out.result.text);
  return out;
}

Request up_to(int64_t tokens) {
  Request request;
  request.sampling.max_tokens = tokens;
  request.sampling.eos_token_ids = {kEnd};
  return request;
}

std::vector<int32_t> then(std::vector<int32_t> tokens, std::initializer_list<int32_t> more) {
  tokens.insert(tokens.end(), more);
  return tokens;
}

TEST(AnswerText, TheEndingTokenHasNone) {
  const std::vector<int32_t> script = then(ids("The end of it"), {kEnd});
  const Read read_all = read(script, up_to(50));
  EXPECT_EQ(read_all.result.text, "The end of it");
  EXPECT_EQ(read_all.result.token_ids, script);
  EXPECT_EQ(read_all.result.finish_reason, FinishReason::kStop);

  Request request = up_to(50);  // a stop token with a text of its own
  request.sampling.stop_token_ids = {ids("of").back()};
  const std::vector<int32_t> of = then(ids("The end"), {ids("of").back(), ids("!").back()});
  EXPECT_EQ(read(of, request).result.text, "The end");
  EXPECT_EQ(read(of, request).result.stop_token, ids("of").back());
  request.include_stop_in_output = true;
  EXPECT_EQ(read(of, request).result.text, "The endof");
}

// A Llama 2 vocabulary writes the space before a word into the word, and its decoder takes the first one of a text
// away: the answer's is not the first.
TEST(AnswerText, AnAnswerKeepsTheSpaceBetweenItAndItsPrompt) {
  std::ifstream in(std::string(SPYRE_TEST_DATA) + "/tiny_byte_fallback.json", std::ios::binary);
  const auto spm = text::Tokenizer::from_json(std::string(std::istreambuf_iterator<char>(in), {}));
  const std::vector<int32_t> prompt = spm.encode("the", {.add_special = false}), script = prompt;
  Rig rig({.max_model_len = 120, .num_blocks = 40, .script = script, .engine = {.tokenizer = &spm}}, text_model());
  Request request = up_to(std::ssize(script));
  request.prompt_ids = prompt;
  EXPECT_EQ(generate(*rig.engine, request).text, " the");
  request.prompt_ids = {kBos};  // no text: the answer begins it
  EXPECT_EQ(generate(*rig.engine, request).text, "the");
}

TEST(AnswerText, SpecialTokensAreSkippedUnlessAskedFor) {
  std::vector<int32_t> script = ids("a b");
  script.insert(script.begin() + 1, kBos);
  script.push_back(kEnd);
  Request request = up_to(50);
  EXPECT_EQ(read(script, request).result.text, "a b");
  request.skip_special_tokens = false;
  EXPECT_EQ(read(script, request).result.text, "a<|bos|> b");
}

// Characters of several tokens come whole; what the limit cuts in the middle is flushed.
TEST(AnswerText, HalfACharacterIsNeverSent) {
  const std::vector<int32_t> script = ids("Zürich 東京 👩‍💻 é");
  for (int64_t limit = 1; limit <= std::ssize(script); ++limit) {
    const Read r = read(script, up_to(limit));
    const std::vector<int32_t> shown(script.begin(), script.begin() + limit);
    EXPECT_EQ(r.result.text, tokenizer().decode(shown)) << limit;
    EXPECT_EQ(r.result.finish_reason, FinishReason::kLength);
    for (const std::string& piece : r.pieces) EXPECT_NO_THROW(nlohmann::json(piece).dump()) << limit;
  }
}

TEST(AnswerText, AStopStringAcrossTokensNeverLeaks) {
  const std::vector<int32_t> script = then(ids("one two three four"), {kEnd});
  Request request = up_to(50);
  request.stop = {"wo th"};
  Read r = read(script, request);
  EXPECT_EQ(r.result.text, "one t");
  EXPECT_EQ(r.result.finish_reason, FinishReason::kStop);
  EXPECT_EQ(r.result.stop_string, "wo th");
  EXPECT_EQ(r.result.stop_token, std::nullopt);
  request.include_stop_in_output = true;
  EXPECT_EQ(read(script, request).result.text, "one two th");
  request.include_stop_in_output = false;

  request.stop = {"four and more"};  // held, never completed: flushed at EOS ...
  EXPECT_EQ(read(script, request).result.text, "one two three four");
  EXPECT_EQ(read(script, request).result.stop_string, std::nullopt);
  request.sampling.max_tokens = std::ssize(script) - 1;  // ... and at the limit
  r = read(script, request);
  EXPECT_EQ(r.result.text, "one two three four");
  EXPECT_EQ(r.result.finish_reason, FinishReason::kLength);
  EXPECT_EQ(r.result.token_ids.size(), script.size() - 1);
}

// A stop string that is completed by what is flushed last ends the answer all the same.
TEST(AnswerText, TheFlushCanCompleteAStopString) {
  const std::vector<int32_t> half = {ids("é")[0]};
  ASSERT_EQ(tokenizer().decode(half), "\uFFFD") << "the fixture has a token for the whole character";
  Request request = up_to(3);
  request.stop = {"b\uFFFD"};
  std::vector<int32_t> script = then(ids("ab"), {half[0]});
  request.sampling.max_tokens = std::ssize(script);
  const Read r = read(script, request);
  EXPECT_EQ(r.result.text, "a");
  EXPECT_EQ(r.result.stop_string, "b\uFFFD");
  EXPECT_EQ(r.result.finish_reason, FinishReason::kStop);
}

// As in vLLM: a stop string counts when a token after the first min_tokens completes it.
TEST(AnswerText, MinTokensDelaysStopStrings) {
  const std::vector<int32_t> script = ids("xx xx xx xx xx xx");
  Request request = up_to(std::ssize(script));
  request.stop = {"xx"};
  EXPECT_EQ(read(script, request).result.text, "");
  int64_t shortest = 0;
  for (int64_t least = 1; least < std::ssize(script) - 2; ++least) {
    request.sampling.min_tokens = least;
    const Read r = read(script, request);
    EXPECT_GT(std::ssize(r.result.token_ids), least);
    EXPECT_EQ(r.result.stop_string, "xx");
    EXPECT_GE(std::ssize(r.result.text), shortest);
    shortest = std::ssize(r.result.text);
  }
  EXPECT_GT(shortest, 5);
}

TEST(AnswerText, AnAbortFlushesWhatWasHeld) {
  Rig rig(
      {.max_model_len = 120, .num_blocks = 40, .script = ids("one two three"), .engine = {.tokenizer = &tokenizer()}},
      text_model());
  Request request = up_to(50);
  request.id = "a";
  request.prompt_ids = {5};
  request.stop = {"one two three and so on"};
  testing::Answers answers;
  rig.engine->submit(request, answers.callback());
  for (int i = 0; i < 4; ++i) rig.engine->step();
  EXPECT_EQ(answers[0].text, "");
  const std::vector<int32_t> drawn = answers[0].tokens;
  rig.engine->cancel("a");
  EXPECT_EQ(answers[0].text, tokenizer().decode(drawn));
  EXPECT_EQ(answers[0].last.finish_reason, FinishReason::kAbort);
}

// Random texts, stops and limits: the pieces are the one-shot decode, cut at the first stop string.
TEST(AnswerText, StreamedIsOneShot) {
  std::mt19937 random(5);
  int stopped = 0;
  for (int i = 0; i < 300; ++i) {
    std::vector<int32_t> script(1 + random() % 40);
    for (int32_t& token : script) token = 4 + static_cast<int32_t>(random() % (kTextVocab - 4));
    const std::string whole = tokenizer().decode(script);
    Request request = up_to(std::ssize(script));
    if (i % 2 == 0 && whole.size() > 6) {  // some characters of it
      size_t from = random() % (whole.size() - 1), to = from + 1 + random() % 5;
      while (from > 0 && (whole[from] & 0xC0) == 0x80) --from;
      while (to < whole.size() && (whole[to] & 0xC0) == 0x80) ++to;
      request.stop = {whole.substr(from, to - from)};
    }
    const Read r = read(script, request);
    const size_t at = request.stop.empty() ? std::string::npos : whole.find(request.stop[0]);
    stopped += at != std::string::npos;
    EXPECT_EQ(r.result.text, whole.substr(0, at)) << i;
    EXPECT_EQ(r.result.stop_string.has_value(), at != std::string::npos) << i;
  }
  EXPECT_GT(stopped, 100);
}

}  // namespace
}  // namespace spyre::engine
