// spyre chat from a pipe: the real program, a model of random weights, and a tokenizer of bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>

#include "program.h"

namespace spyre::system_test {
namespace {

using ::testing::HasSubstr;

// One token per byte: <unk>, <s>, </s>, then byte b as id 3 + b.
std::string byte_tokenizer() {
  nlohmann::json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int b = 0; b < 256; ++b) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", b);
    vocab[name] = 3 + b;
  }
  nlohmann::json added = nlohmann::json::array();
  for (const char* token : {"<unk>", "<s>", "</s>"}) {
    added.push_back({{"id", vocab[token]},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const nlohmann::json model = {{"type", "BPE"},         {"unk_token", "<unk>"}, {"fuse_unk", true},
                                {"byte_fallback", true}, {"vocab", vocab},       {"merges", nlohmann::json::array()}};
  const nlohmann::json decoder = {
      {"type", "Sequence"}, {"decoders", nlohmann::json::array({{{"type", "ByteFallback"}}, {{"type", "Fuse"}}})}};
  return nlohmann::json{{"version", "1.0"}, {"added_tokens", added}, {"decoder", decoder}, {"model", model}}.dump();
}

class Chat : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const auto& entry : std::filesystem::directory_iterator(golden("llama_gqa64"))) {
      if (entry.path().extension() != ".safetensors" || entry.path().stem() == "model")
        std::filesystem::copy(entry.path(), folder_.path() / entry.path().filename());
    }
    folder_.write("tokenizer.json", byte_tokenizer());
    folder_.write("tokenizer_config.json",
                  R"({"bos_token": "<s>", "eos_token": "</s>", "chat_template":
                      "{% for m in messages %}{{ m.role[0] }}{{ m.content }}\n{% endfor %}a"})");
  }

  // Answers are four times the letter A: its token, 3 + 65, is made certain.
  Outcome chat(const std::string& input, const std::string& flags = "--max-tokens 4 --logit-bias 68:100") {
    folder_.write("input", input);
    const std::string base = folder_.path().string();
    const std::string command = std::string("'") + SPYRE_PROGRAM + "' chat '" + base + "' " + flags + " < '" + base +
                                "/input' > '" + base + "/out' 2> '" + base + "/err'";
    const int status = std::system(command.c_str());
    return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
            .out = read_file(folder_.path() / "out"),
            .err = read_file(folder_.path() / "err")};
  }

  ScratchFolder folder_;
};

TEST_F(Chat, AnswersEachLineOfAPipeAndPrintsNothingElse) {
  const Outcome outcome = chat("hello\n\n/reset\nand again");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "AAAA\nAAAA\n");
  const std::string cut = "[cut at the limit on its length: --max-tokens, or the model's context]\n";
  EXPECT_EQ(outcome.err, cut + "The conversation is forgotten.\n" + cut);
}

TEST_F(Chat, LeavesOutALineThatIsNotTextAndGoesOn) {
  const Outcome outcome = chat("hello\ncaf\xe9\n\xff\xfe\nand again\n");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.out, "AAAA\nAAAA\n");
  EXPECT_THAT(outcome.err, HasSubstr("spyre: line 2 is left out: this is not UTF-8\n"));
  EXPECT_THAT(outcome.err, HasSubstr("spyre: line 3 is left out: this is not UTF-8\n"));
  EXPECT_THAT(outcome.err, HasSubstr("spyre: 2 of 4 lines were left out: they are not UTF-8\n"));
}

TEST_F(Chat, GoesOnWithTheConversationUntilTheContextIsFull) {
  // 512 tokens: each turn takes its 100 bytes, two roles, a line end and the answer.
  std::string input;
  for (int i = 0; i < 6; ++i) input += std::string(100, 'x') + "\n";
  const Outcome outcome = chat(input);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.out, "AAAA\nAAAA\nAAAA\nAAAA\n");
  EXPECT_THAT(outcome.err, HasSubstr("the conversation has 535 tokens, and the context of 512 has no room"));
}

TEST_F(Chat, SaysWhatIsMissing) {
  folder_.write("tokenizer_config.json", "{}");
  const Outcome none = chat("hello\n");
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, HasSubstr("no chat template"));
  folder_.write("own.jinja", "{{ messages[0].content }}");
  EXPECT_EQ(chat("hello\n",
                 "--max-tokens 1 --logit-bias 68:100 --chat-template '" + (folder_.path() / "own.jinja").string() + "'")
                .out,
            "A\n");
  EXPECT_EQ(chat("hello\n", "--max-tokens 0").code, 2);
}

TEST_F(Chat, RaiseExceptionOfATemplateIsTheMessage) {
  folder_.write("tokenizer_config.json", R"({"chat_template": "{{ raise_exception('only dogs may talk') }}"})");
  const Outcome outcome = chat("hello\n");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("spyre: only dogs may talk\n"));
}

}  // namespace
}  // namespace spyre::system_test
