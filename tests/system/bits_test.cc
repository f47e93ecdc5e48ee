// The promise of equal bits, asked of the program: whatever a user may turn (instruction set, threads, buckets, chunks,
// blocks) leaves tokens and log-probabilities as they are. JSON prints floats with 9 digits, so equal text is equal
// bits.
#include <gmock/gmock.h>

#include "program.h"

namespace spyre::system_test {
namespace {

using nlohmann::json;

struct Type {
  std::string dtype, order;
};

class EqualBits : public ::testing::TestWithParam<Type> {
 protected:
  // The golden prompt of 129 ids and 12 more tokens; only what must be equal.
  static json answer(const Arguments& more, const Variables& variables = {}, const char* platform = "spyre") {
    Arguments arguments{"generate",
                        golden("llama_gqa64"),
                        "--prompt-ids",
                        prompt_of("llama_gqa64", 129),
                        "--max-tokens",
                        "12",
                        "--ignore-eos",
                        "--logprobs",
                        "5",
                        "--prompt-logprobs",
                        "5",
                        "--platform",
                        platform,
                        "--dtype",
                        GetParam().dtype,
                        "--order",
                        GetParam().order,
                        "--format",
                        "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    json out = run(arguments, variables).json();
    if (!out.is_object()) return out;
    out.erase("timings");
    return out;
  }
  static const json& usual() {
    static std::map<std::string, json> answers;
    json& answer_of = answers[GetParam().dtype + GetParam().order];
    if (answer_of.is_null()) answer_of = answer({"--threads", "1"});
    return answer_of;
  }
};

TEST_P(EqualBits, OnEveryInstructionSet) {
  for (const char* level : {"portable", "avx2", "avx512", "avx512_bf16", "amx"}) {
    EXPECT_EQ(answer({"--threads", "1"}, {{"SPYRE_CPU_FEATURES", level}}), usual()) << level;
  }
}

TEST_P(EqualBits, OnAnyNumberOfThreads) {
  for (const char* threads : {"2", "3"}) EXPECT_EQ(answer({"--threads", threads}), usual()) << threads;
}

TEST_P(EqualBits, ForAnyChunkOfThePrompt) {
  for (const char* tokens : {"16", "50", "127", "129"}) {
    EXPECT_EQ(answer({"--threads", "1", "--max-num-batched-tokens", tokens}), usual()) << tokens;
  }
}

TEST_P(EqualBits, InAnyBucket) {
  for (const char* ladder : {"512", "1,512", "3,130,512"}) {
    EXPECT_EQ(answer({"--threads", "1", "--token-buckets", ladder}), usual()) << ladder;
  }
  EXPECT_EQ(answer({"--threads", "1"}, {{"SPYRE_ATTN_KV_BUCKETS", "512"}, {"SPYRE_ATTN_QUERY_BUCKETS", "512"}}),
            usual());
}

TEST_P(EqualBits, ForAnyBlockSize) {
  for (const char* block : {"64", "256"})
    EXPECT_EQ(answer({"--threads", "1", "--block-size", block}), usual()) << block;
}

TEST_P(EqualBits, OnTheReference) {
  EXPECT_EQ(answer({}, {}, "cpu"), usual());
}

TEST_P(EqualBits, InCheckedMode) {
  EXPECT_EQ(answer({"--threads", "1", "--checked"}), usual());
}

TEST_P(EqualBits, OperatorByOperator) {
  EXPECT_EQ(answer({"--threads", "2", "--enforce-eager"}), usual());
}

INSTANTIATE_TEST_SUITE_P(Types, EqualBits,
                         ::testing::Values(Type{"float16", "auto"}, Type{"bfloat16", "pair"}, Type{"bfloat16", "tile"}),
                         [](const auto& info) { return info.param.dtype + "_" + info.param.order; });

TEST(Orders, DifferInTheLastBits) {
  // Were they equal, the tests above would prove little about either.
  auto logprobs = [](const char* order) {
    return run({"generate", golden("llama_gqa64"), "--prompt-ids", prompt_of("llama_gqa64", 64), "--max-tokens", "1",
                "--logprobs", "-1", "--dtype", "bfloat16", "--order", order, "--format", "json"})
        .json()["logprobs"];
  };
  EXPECT_NE(logprobs("pair"), logprobs("tile"));
}

TEST(CpuFeatures, AnUnknownNameIsRefused) {
  const Outcome outcome =
      run({"generate", golden("llama_gqa64"), "--prompt-ids", "5"}, {{"SPYRE_CPU_FEATURES", "mmx"}});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, ::testing::HasSubstr("mmx"));
  EXPECT_EQ(outcome.error_lines(), 1) << outcome.err;
}

}  // namespace
}  // namespace spyre::system_test
