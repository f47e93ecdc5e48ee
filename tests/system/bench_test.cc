// spyre bench from outside: what a script that drives it sees.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <sstream>

#include "program.h"

namespace spyre::system_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// The answers of `spyre bench drive` to |questions|, a line each; the first is what it says when it has opened.
std::vector<json> drive(const std::vector<std::string>& questions, const std::string& flags = "") {
  const ScratchFolder folder;
  std::string input;
  for (const std::string& q : questions) input += q + "\n";
  const std::string in = folder.write("in", input), out = (folder.path() / "out").string();
  const std::string command =
      std::string(SPYRE_PROGRAM) + " bench drive " + golden("llama_gqa64") + " " + flags + " <" + in + " >" + out;
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 0);
  std::istringstream lines(read_file(out));
  std::vector<json> answers;
  for (std::string line; std::getline(lines, line);) answers.push_back(json::parse(line));
  return answers;
}

TEST(BenchDrive, SaysWhenEachTokenCame) {
  const std::vector<json> answers = drive({R"({"run": {"prompts": [[5, 6, 7], [8, 9]], "output_tokens": 4}})",
                                           R"({"run": {"prompts": [[5]], "output_tokens": 2}})"});
  ASSERT_EQ(answers.size(), 3);
  EXPECT_EQ(answers[0]["platform"], "spyre");
  EXPECT_GT(answers[0]["work"]["weight_bytes_per_step"], 0);
  const json& times = answers[1]["times"];
  ASSERT_EQ(times.size(), 2);
  for (const json& of_one : times) {
    ASSERT_EQ(of_one.size(), 4);
    EXPECT_GT(of_one[0], 0);
    for (size_t i = 1; i < of_one.size(); ++i) EXPECT_GE(of_one[i], of_one[i - 1]);
  }
  EXPECT_EQ(answers[2]["times"][0].size(), 2);
}

TEST(BenchDrive, GoesOnAfterAWrongQuestion) {
  const std::vector<json> answers =
      drive({"no JSON", R"({"dance": 1})", R"({"run": {"prompts": [[1, 999999]], "output_tokens": 4}})",
             R"({"run": {"prompts": [[1]]}})", R"({"report": "rows"})",
             R"({"run": {"prompts": [[1, 2]], "output_tokens": 1}})"});
  ASSERT_EQ(answers.size(), 7);
  for (size_t i = 1; i < 5; ++i) EXPECT_TRUE(answers[i].contains("error")) << answers[i];
  EXPECT_THAT(answers[3]["error"].get<std::string>(), HasSubstr("999999"));
  EXPECT_TRUE(answers[5]["report"].contains("body"));
  EXPECT_EQ(answers[6]["times"][0].size(), 1);
}

TEST(BenchDrive, HasTheMetersOfThePlatform) {
  const std::string question = R"({"limits": {"stream_bytes": 1000000}})";
  const json limits = drive({question})[1];
  EXPECT_GT(limits["gflops"], 0);
  EXPECT_GT(limits["gbps"], 0);
  EXPECT_TRUE(drive({question}, "--platform cpu")[1]["gbps"].is_null());
}

// A tiny model with a tokenizer: vocabulary 502, context 1024.
std::string served_model(const ScratchFolder& folder) {
  const std::string out = (folder.path() / "model").string();
  const std::string command = std::string(SPYRE_PYTHON) + " " SPYRE_SOURCE "/tests/clients/make_model.py " + out;
  EXPECT_EQ(std::system(command.c_str()), 0);
  return out;
}

TEST(BenchServe, LoadsAServerOfItsOwn) {
  const ScratchFolder folder;
  const std::string model = served_model(folder);
  const json report = run({"bench", "serve", model, "--requests", "12", "--clients", "3", "--max-output", "20",
                           "--max-prompt", "200", "--format", "json", "--", "--max-num-seqs", "4"})
                          .json();
  const json& s = report["summary"];
  EXPECT_EQ(s["requests"], 12);
  EXPECT_EQ(s["failed"], 0) << s["errors"];
  EXPECT_EQ(s["prompt_tokens"].get<double>(), 12 * report["lengths"]["prompt_tokens"]["mean"].get<double>());
  EXPECT_EQ(s["output_tokens"].get<double>(), 12 * report["lengths"]["output_tokens"]["mean"].get<double>());
  EXPECT_GT(s["first_token"]["p50"], 0);
  EXPECT_GE(s["end_to_end"]["p99"], s["end_to_end"]["p50"]);
  EXPECT_EQ(report["compiles_after_ready"], 0);
  // Each prompt, and each token but the last of an answer, was a row, unless the prefix cache had it.
  EXPECT_LE(report["padding"]["body"]["live"].get<double>(),
            s["prompt_tokens"].get<double>() + s["output_tokens"].get<double>() - 12);
  EXPECT_GT(report["padding"]["body"]["live"], 0);
}

TEST(BenchServe, RequestsMayComeByThemselvesAndTheTextSaysSo) {
  const ScratchFolder folder;
  const Outcome outcome = run({"bench", "serve", served_model(folder), "--requests", "8", "--rate", "200",
                               "--max-output", "4", "--max-prompt", "16", "--warm-up", "0"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part :
       {"Poisson arrivals, 200 a second", "first token", "goodput", "padding, body", "8 requests, seed 1"}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
}

TEST(BenchServe, WrongWordsAreOneLine) {
  EXPECT_EQ(run({"bench", "serve"}).code, 2);
  EXPECT_EQ(run({"bench", "serve", "m", "--url", "http://127.0.0.1:1"}).code, 2);
  for (const Arguments& words :
       {Arguments{"bench", "serve", "--url", "ftp://x"}, Arguments{"bench", "serve", "--url", "http://127.0.0.1:1"},
        Arguments{"bench", "serve", "/nowhere"},
        Arguments{"bench", "serve", golden("llama_gqa64"), "--prompt-sigma", "9"}}) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 1);
    EXPECT_THAT(outcome.err, HasSubstr("spyre: "));
  }
  const ScratchFolder folder;
  const Outcome refused = run({"bench", "serve", served_model(folder), "--", "--no-such-flag"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("the server ended before it was ready"));
}

TEST(Bench, WantsAModel) {
  const Outcome outcome = run({"bench"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("MODEL is required"));
}

}  // namespace
}  // namespace spyre::system_test
