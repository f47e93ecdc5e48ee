// What scripts rely on: the JSON of each command, its exit codes, and one clear line for whatever is wrong.
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "program.h"

namespace spyre::system_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kModel = "llama_gqa64";  // vocabulary 307, longest sequence 512, no tokenizer

Arguments generate(const Arguments& more) {
  Arguments out{"generate", golden(kModel)};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

class GenerateJson : public ::testing::TestWithParam<std::string> {};

TEST_P(GenerateJson, HasTheContractsFields) {
  const json out = run(generate({"--prompt-ids", "5,17,3", "--max-tokens", "4", "--ignore-eos", "--logprobs", "2",
                                 "--prompt-logprobs", "0", "--platform", GetParam(), "--format", "json"}))
                       .json();
  EXPECT_EQ(out["prompt_token_ids"], json({5, 17, 3}));
  EXPECT_EQ(out["token_ids"].size(), 4u);
  EXPECT_EQ(out["text"], "");
  EXPECT_EQ(out["finish_reason"], "length");
  EXPECT_GT(out["timings"]["prefill_seconds"].get<double>(), 0);
  EXPECT_EQ(out["timings"]["decode_steps"], 3);
  ASSERT_EQ(out["logprobs"].size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const json& l = out["logprobs"][i];
    EXPECT_EQ(l["id"], out["token_ids"][i]);
    ASSERT_EQ(l["top"].size(), 2u);
    EXPECT_EQ(l["top"][0], json({l["id"], l["logprob"]}));  // greedy: the most probable
    EXPECT_LE(l["top"][1][1].get<double>(), l["top"][0][1].get<double>());
  }
  ASSERT_EQ(out["prompt_logprobs"].size(), 3u);
  EXPECT_TRUE(out["prompt_logprobs"][0].is_null());
  EXPECT_EQ(out["prompt_logprobs"][1]["id"], 17);
  EXPECT_TRUE(out["prompt_logprobs"][1]["top"].empty());
}

TEST_P(GenerateJson, GivesTheWholeVocabularyForMinusOne) {
  const json out = run(generate({"--prompt-ids", "5,17", "--max-tokens", "1", "--logprobs", "-1", "--platform",
                                 GetParam(), "--format", "json"}))
                       .json();
  const json& top = out["logprobs"][0]["top"];
  ASSERT_EQ(top.size(), 307u);
  double mass = 0;
  for (const json& pair : top) mass += std::exp(pair[1].get<double>());
  EXPECT_NEAR(mass, 1, 1e-4);
}

TEST_P(GenerateJson, OnlyScoresAPromptWithMaxTokens0) {
  const json out = run(generate({"--prompt-ids", "5,17", "--max-tokens", "0", "--prompt-logprobs", "1", "--platform",
                                 GetParam(), "--format", "json"}))
                       .json();
  EXPECT_TRUE(out["token_ids"].empty());
  EXPECT_EQ(out["prompt_logprobs"].size(), 2u);
}

INSTANTIATE_TEST_SUITE_P(Platforms, GenerateJson, ::testing::Values("cpu", "spyre"),
                         [](const auto& info) { return info.param; });

// Ids in, ids out: a tokenizer that cannot be read is in nobody's way; a text prompt says what is wrong with it.
TEST(Generate, IdsNeedNoTokenizer) {
  const ScratchFolder folder;
  for (const auto& entry : std::filesystem::directory_iterator(golden(kModel))) {
    if (entry.is_regular_file()) std::filesystem::copy_file(entry.path(), folder.path() / entry.path().filename());
  }
  const std::string plain = run(generate({"--prompt-ids", "5,17,3", "--max-tokens", "3", "--ignore-eos"})).out;
  const Arguments ids = {"generate", folder.path().string(), "--prompt-ids", "5,17,3", "--max-tokens",
                         "3",        "--ignore-eos"};
  const Arguments text = {"generate", folder.path().string(), "--prompt", "x"};
  const auto expect_both = [&](const char* what) {
    EXPECT_EQ(run(ids).out, plain) << what;
    const Outcome outcome = run(text);
    EXPECT_EQ(outcome.code, 1) << what;
    EXPECT_EQ(outcome.error_lines(), 1) << what << ": " << outcome.err;
    EXPECT_THAT(outcome.err, ::testing::Not(HasSubstr("unexpected"))) << what;
  };
  folder.write("tokenizer.json", "{]");
  expect_both("a damaged file");
  std::filesystem::remove(folder.path() / "tokenizer.json");
  std::filesystem::create_symlink("tokenizer.json", folder.path() / "tokenizer.json");
  expect_both("a link to itself");
}

TEST(Generate, AMessageIsOneLineWhateverItQuotes) {
  for (const Arguments& arguments :
       {Arguments{"generate", "a\nb", "--prompt-ids", "1"},
        Arguments{"generate", golden(kModel), "--prompt-ids", "1", "--platform", "x\ny"}, Arguments{"generate\nx"}}) {
    const Outcome outcome = run(arguments);
    EXPECT_NE(outcome.code, 0);
    EXPECT_EQ(outcome.error_lines(), 1) << outcome.err;
  }
}

TEST(Generate, KeepsTheEndingTokenInTheIds) {
  const Arguments base = {"--prompt-ids", "5,17,3", "--max-tokens", "6", "--ignore-eos", "--format", "json"};
  const json free = run(generate(base)).json();
  const int64_t stop = free["token_ids"][2];
  const auto first = std::find(free["token_ids"].begin(), free["token_ids"].end(), stop) - free["token_ids"].begin();
  Arguments stopped = base;
  stopped.insert(stopped.end(), {"--stop-token-ids", std::to_string(stop)});
  const json out = run(generate(stopped)).json();
  EXPECT_EQ(out["finish_reason"], "stop");
  ASSERT_EQ(out["token_ids"].size(), static_cast<size_t>(first) + 1);
  EXPECT_EQ(out["token_ids"].back(), stop);
}

TEST(Generate, PrintsIdsWithoutATokenizer) {
  const Arguments base = {"--prompt-ids", "5,17,3", "--max-tokens", "3", "--ignore-eos"};
  Arguments with_json = base;
  with_json.insert(with_json.end(), {"--format", "json"});
  const json ids = run(generate(with_json)).json()["token_ids"];
  const Outcome text = run(generate(base));
  EXPECT_EQ(text.code, 0);
  EXPECT_EQ("[" + text.out + "]", ids.dump().insert(ids.dump().size() - 1, "\n"));
  EXPECT_EQ(text.err, "");
}

TEST(Generate, TheSameSeedDrawsTheSameTokens) {
  const Arguments drawn = generate({"--prompt-ids", "5,17", "--max-tokens", "12", "--ignore-eos", "--temperature", "2",
                                    "--seed", "7", "--format", "json"});
  Arguments other = drawn;
  *(std::find(other.begin(), other.end(), "--seed") + 1) = "8";
  const json first = run(drawn).json(), second = run(drawn).json(), third = run(other).json();
  EXPECT_EQ(first["token_ids"], second["token_ids"]);
  EXPECT_NE(first["token_ids"], third["token_ids"]);
}

TEST(Generate, StopsAtTheLongestSequence) {
  const json out = run(generate({"--prompt-ids", "5,17", "--max-tokens", "1000000000000", "--ignore-eos",
                                 "--max-model-len", "40", "--format", "json"}))
                       .json();
  EXPECT_EQ(out["token_ids"].size(), 38u);
  EXPECT_EQ(out["finish_reason"], "length");
}

struct Wrong {
  const char* name;
  Arguments arguments;
  int code;
  std::string words;  // of the one line
};

void PrintTo(const Wrong& wrong, std::ostream* out) {
  *out << wrong.name;
}

class WrongInput : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongInput, EndsInOneClearLine) {
  const Wrong& wrong = GetParam();
  const Outcome outcome = run(wrong.arguments);
  EXPECT_EQ(outcome.code, wrong.code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.error_lines(), 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(wrong.words));
  EXPECT_TRUE(outcome.err.starts_with("spyre: ")) << outcome.err;
}

std::vector<Wrong> wrong_inputs() {
  const std::string data = SPYRE_TEST_DATA;
  auto sampled = [](const char* flag, const char* value) { return generate({"--prompt-ids", "5", flag, value}); };
  return {
      {"NoCommand", {}, 2, "subcommand"},
      {"UnknownCommand", {"sing"}, 2, "sing"},
      {"NoModel", {"generate", "--prompt-ids", "5"}, 2, "MODEL"},
      {"UnknownFlag", generate({"--prompt-ids", "5", "--loud"}), 2, "--loud"},
      {"NoPrompt", generate({}), 2, "--prompt-ids"},
      {"TwoPrompts", generate({"--prompt", "a", "--prompt-ids", "5"}), 2, "--prompt"},
      {"EmptyIds", generate({"--prompt-ids", ""}), 2, "--prompt-ids"},
      {"IdNotANumber", generate({"--prompt-ids", "5,x"}), 2, "'x'"},
      {"IdNegative", generate({"--prompt-ids", "5,-3"}), 2, "-3"},
      {"IdTooLarge", generate({"--prompt-ids", "99999999999"}), 2, "99999999999"},
      {"IdPast64Bits", generate({"--prompt-ids", "99999999999999999999999"}), 2, "99999999999999999999999"},
      {"IdOutsideTheVocabulary", generate({"--prompt-ids", "5,307"}), 1, "307"},
      {"Format", sampled("--format", "xml"), 2, "xml"},
      {"Dtype", sampled("--dtype", "float12"), 2, "float12"},
      {"DtypeOfTheCard", sampled("--dtype", "float32"), 1, "float16"},
      {"Order", sampled("--order", "random"), 2, "random"},
      {"Preset", sampled("--preset", "theirs"), 2, "theirs"},
      {"Platform", sampled("--platform", "abacus"), 1, "abacus"},
      {"PlatformNull", sampled("--platform", "null"), 1, "null"},
      {"TemperatureNan", sampled("--temperature", "nan"), 2, "temperature"},
      {"TemperatureInf", sampled("--temperature", "inf"), 2, "temperature"},
      {"TemperatureNegative", sampled("--temperature", "-1"), 2, "temperature"},
      {"TemperatureWord", sampled("--temperature", "warm"), 2, "warm"},
      {"TopP0", sampled("--top-p", "0"), 2, "top_p"},
      {"TopPNan", sampled("--top-p", "nan"), 2, "top_p"},
      {"TopKNegative", sampled("--top-k", "-2"), 2, "top_k"},
      {"MinP2", sampled("--min-p", "2"), 2, "min_p"},
      {"MaxTokensNegative", sampled("--max-tokens", "-1"), 2, "max_tokens"},
      {"Logprobs1e9", sampled("--logprobs", "1000000000"), 1, "1000000000"},
      {"LogprobsNegative", sampled("--logprobs", "-2"), 2, "logprobs"},
      {"LogprobsPast32Bits", sampled("--logprobs", "1000000000000"), 2, "1000000000000"},
      {"StopTokenNegative", sampled("--stop-token-ids", "-4"), 2, "-4"},
      {"StopTokenOutside", sampled("--stop-token-ids", "400"), 1, "400"},
      {"MaxModelLen0", sampled("--max-model-len", "0"), 2, "--max-model-len"},
      {"MaxModelLenPastTheModel", sampled("--max-model-len", "513"), 1, "513"},
      {"KvBytes1", sampled("--kv-cache-memory-bytes", "1"), 1, "bytes per block"},
      {"KvBlocksWithoutEnd", sampled("--num-gpu-blocks-override", "9000000000000000000"), 1, "9000000000000000000"},
      {"TokenBuckets", sampled("--token-buckets", "1,two"), 2, "two"},
      {"Threads", sampled("--threads", "-3"), 2, "-3"},
      {"MissingFile", {"generate", "/nowhere/model.gguf", "--prompt-ids", "5"}, 1, "/nowhere/model.gguf"},
      {"FolderWithoutConfig", {"generate", data + "/fuzz/config", "--prompt-ids", "5"}, 1, "config.json"},
      {"NoTokenizer", generate({"--prompt", "hello"}), 1, "--prompt-ids"},
      {"CutGguf", {"generate", data + "/fuzz/gguf/bad-cut.gguf", "--prompt-ids", "5"}, 1, "bad-cut.gguf"},
      {"GgufCounts", {"inspect", data + "/fuzz/gguf/bad-tensor-count.gguf"}, 1, "bad-tensor-count.gguf"},
      {"InspectTopic", {"inspect", golden(kModel), "--topic", "weather"}, 1, "weather"},
      {"MeterOfTheWholeMachine",
       {"inspect", golden(kModel), "--topic", "meters/stream/60000000000000"},
       1,
       "60000000000000"},
      {"MeterWithoutASize", {"inspect", golden(kModel), "--topic", "meters/stream/much"}, 1, "much"},
      {"BenchTooLong", {"bench", golden(kModel), "--prompt-tokens", "512"}, 1, "512"},
      {"BenchRepeat0", {"bench", golden(kModel), "--repeat", "0"}, 2, "--repeat"},
      {"DiffNoRoom", {"diff", golden(kModel), "--max-tokens", "512"}, 1, "512"},
      {"DiffSide", {"diff", golden(kModel), "--a", "cpu:float16:pair:x"}, 2, "cpu:float16:pair:x"},
      {"DiffDtype", {"diff", golden(kModel), "--b", "spyre:int3"}, 2, "int3"},
  };
}

INSTANTIATE_TEST_SUITE_P(Program, WrongInput, ::testing::ValuesIn(wrong_inputs()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Help, IsThereForEveryCommand) {
  EXPECT_THAT(run({"--help"}).out, HasSubstr("spyre generate MODEL"));
  for (const char* command : {"generate", "inspect", "bench", "diff", "platforms"}) {
    const Outcome outcome = run({command, "--help"});
    EXPECT_EQ(outcome.code, 0) << command;
    EXPECT_EQ(outcome.err, "");
    EXPECT_THAT(outcome.out, HasSubstr("--format"));
  }
}

TEST(Inspect, HasArtifactsBucketsAndRules) {
  for (const char* platform : {"cpu", "spyre"}) {
    const json out = run({"inspect", golden(kModel), "--platform", platform, "--format", "json"}).json();
    for (const char* key : {"artifacts", "buckets", "rules", "memory"}) EXPECT_TRUE(out.contains(key)) << key;
    EXPECT_TRUE(out["artifacts"].contains("total"));
    EXPECT_TRUE(out["artifacts"]["per_class"].is_object());
  }
}

// A Llama-shaped stack has two distinct blocks whatever its depth: the first is given no residual.
TEST(Inspect, CountsTwoBlockGraphsPerBucket) {
  const json out = run({"inspect", golden(kModel), "--topic", "artifacts", "--format", "json"}).json();
  EXPECT_EQ(out["compiles_after_ready"], 0);
  ASSERT_EQ(out["block_graphs_per_bucket"].size(), 1u);
  for (const json& buckets : out["block_graphs_per_bucket"]) {
    EXPECT_FALSE(buckets.empty());
    for (const json& count : buckets) EXPECT_EQ(count, 2);
  }
}

TEST(Bench, ReportsSpeedsLimitsAndMemory) {
  const json out = run({"bench", golden(kModel), "--prompt-tokens", "40", "--output-tokens", "8", "--repeat", "3",
                        "--threads", "1", "--format", "json"})
                       .json();
  for (const char* phase : {"prefill", "decode"}) {
    EXPECT_GT(out[phase]["tokens_per_second"].get<double>(), 0);
    EXPECT_GT(out[phase]["ratio"].get<double>(), 0);
    EXPECT_EQ(out[phase]["samples"].size(), 3u);
  }
  EXPECT_GT(out["start"]["first_token_seconds"].get<double>(), 0);
  EXPECT_GT(out["start"]["programs_compiled"].get<int64_t>(), 0);
  EXPECT_EQ(out["machine"]["threads"], 1);
  EXPECT_GT(out["memory"]["weight_bytes"].get<int64_t>(), 0);
  EXPECT_EQ(out["compiles_after_ready"], 0);
  // Weights as the files have them: 36 wide, MLP 94, 9 + 2 x 3 heads of 64 and back, two layers, and the tied table.
  const int64_t layer = 36 * (9 + 6) * 64 + 9 * 64 * 36 + 3 * 36 * 94, head = 36 * 307, norms = 5 * 36;
  const int64_t kv = 2 * 2 * 3 * 64 * 2, table = (36 + 64) * 2;
  EXPECT_NEAR(out["decode"]["bytes_per_token"].get<double>(),
              static_cast<double>((2 * layer + head + norms) * 2 + kv * 44 + table), 400);
}

TEST(Bench, WorksWithoutMeters) {
  const json out = run({"bench", golden(kModel), "--platform", "cpu", "--prompt-tokens", "4", "--output-tokens", "2",
                        "--repeat", "1", "--format", "json"})
                       .json();
  EXPECT_GT(out["decode"]["tokens_per_second"].get<double>(), 0);
  EXPECT_TRUE(out["decode"]["ratio"].is_null());
}

TEST(Diff, FindsNothingBetweenEqualBits) {
  for (const char* dtype : {"float16", "bfloat16:pair", "bfloat16:tile"}) {
    const json out =
        run({"diff", golden(kModel), "--a", std::string("cpu:") + dtype, "--b", std::string("spyre:") + dtype,
             "--prompt-tokens", "40", "--max-tokens", "4", "--format", "json"})
            .json();
    ASSERT_GE(out["layers"].size(), 4u);  // embedding, two blocks, the final norm, logits
    for (const json& layer : out["layers"]) EXPECT_EQ(layer["max_abs_difference"], 0.0) << dtype << " " << layer;
    EXPECT_EQ(out["layers"].back()["layer"], "logits");
    EXPECT_TRUE(out["greedy"]["first_difference"].is_null());
  }
}

// A tapped step gives the tokens of a step that nobody watches.
TEST(Diff, WatchingChangesNothing) {
  const json watched = run({"diff", golden(kModel), "--a", "cpu:bfloat16:tile", "--b", "spyre:bfloat16:tile",
                            "--prompt-ids", prompt_of(kModel, 60), "--max-tokens", "12", "--format", "json"})
                           .json();
  const json free = run(generate({"--prompt-ids", prompt_of(kModel, 60), "--max-tokens", "12", "--ignore-eos",
                                  "--dtype", "bfloat16", "--order", "tile", "--format", "json"}))
                        .json();
  EXPECT_EQ(watched["greedy"]["a_token_ids"], free["token_ids"]);
  EXPECT_EQ(watched["greedy"]["b_token_ids"], free["token_ids"]);
}

TEST(Diff, MeasuresWhatHalfPrecisionCosts) {
  const json out = run({"diff", golden(kModel), "--a", "cpu:float32", "--b", "spyre:float16", "--prompt-tokens", "40",
                        "--max-tokens", "4", "--max-num-batched-tokens", "16", "--format", "json"})
                       .json();
  const double logits = out["layers"].back()["relative"].get<double>();
  EXPECT_GT(logits, 0);
  EXPECT_LT(logits, 0.02);
}

TEST(Output, AFullDiskIsAnError) {
  Program program(generate({"--prompt-ids", "5", "--max-tokens", "4"}), {}, "/dev/full");
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("cannot write the output"));
  EXPECT_EQ(outcome.error_lines(), 1) << outcome.err;
}

TEST(Output, AReaderThatWentAwayIsAnError) {
  const ScratchFolder folder;
  const std::string code = (folder.path() / "code").string(), err = (folder.path() / "err").string();
  const std::string command = "(sleep 0.3; '" SPYRE_PROGRAM "' generate '" + golden(kModel) +
                              "' --prompt-ids 5 --max-tokens 4 2>'" + err + "'; echo $? >'" + code + "') | true";
  ASSERT_EQ(std::system(command.c_str()), 0);
  for (int i = 0; i < 1000 && read_file(code).empty(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(read_file(code), "1\n");
  EXPECT_EQ(read_file(err), "spyre: cannot write the output: Broken pipe\n");
}

TEST(Interrupt, EndsTheAnswerCleanly) {
  // The reference is slow enough to be caught in the act.
  Program program(generate({"--prompt-ids", "5,17", "--max-tokens", "400", "--ignore-eos", "--platform", "cpu"}));
  while (program.running() && program.written().find(',') == std::string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  program.signal(SIGINT);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.code, 130);
  EXPECT_EQ(outcome.err, "spyre: interrupted\n");
  EXPECT_TRUE(outcome.out.ends_with("\n")) << outcome.out;
}

}  // namespace
}  // namespace spyre::system_test
