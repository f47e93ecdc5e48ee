// SmolLM2-135M-Instruct, when it is there: SPYRE_TEST_MODEL, or the file that `./run model` puts into models/.
#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "program.h"

namespace spyre::system_test {
namespace {

using nlohmann::json;

constexpr const char* kQuestion =
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n";

class RealModel : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* given = std::getenv("SPYRE_TEST_MODEL")) {
      model_ = given;
      ASSERT_TRUE(std::filesystem::exists(model_)) << "SPYRE_TEST_MODEL=" << model_;
      return;
    }
    const std::filesystem::path models = SPYRE_MODELS_DIR;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(models, none)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("SmolLM2-135M-Instruct") && name.ends_with(".gguf")) model_ = entry.path();
    }
    if (model_.empty()) GTEST_SKIP() << "no SmolLM2-135M-Instruct in " << models << ": ./run model fetches it";
  }

  json ask(const Arguments& more) const {
    Arguments arguments{"generate", model_, "--prompt", kQuestion, "--format", "json", "--max-model-len", "256"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments).json();
  }

  std::string model_;
};

TEST_F(RealModel, AnswersTheChatPrompt) {
  const json out = ask({"--max-tokens", "32"});
  EXPECT_EQ(out["text"], "The capital of France is Paris.");  // without the token that ends it,
  EXPECT_EQ(out["finish_reason"], "stop");
  EXPECT_EQ(out["token_ids"].back(), 2);     // which the ids keep: <|im_end|>
  EXPECT_EQ(out["prompt_token_ids"][0], 1);  // <|im_start|>, parsed
}

TEST_F(RealModel, StreamsTheSameText) {
  const Outcome outcome = run({"generate", model_, "--prompt", kQuestion, "--max-tokens", "32"});
  EXPECT_EQ(outcome.out, "The capital of France is Paris.\n");
  EXPECT_EQ(outcome.err, "");
}

TEST_F(RealModel, CanBeInterruptedWhileItLoads) {
  Program program({"generate", model_, "--prompt", kQuestion, "--max-tokens", "200", "--ignore-eos"});
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  program.signal(SIGINT);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.code, 130);
  EXPECT_LE(outcome.error_lines(), 1) << outcome.err;
}

TEST_F(RealModel, GivesTheSameGreedyIdsOnBothPlatforms) {
  const Arguments sixteen = {"--max-tokens", "16", "--ignore-eos"};
  Arguments reference = sixteen;
  reference.insert(reference.end(), {"--platform", "cpu"});
  EXPECT_EQ(ask(sixteen)["token_ids"], ask(reference)["token_ids"]);
}

}  // namespace
}  // namespace spyre::system_test
