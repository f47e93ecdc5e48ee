// Golden data of tests/golden: what Hugging Face transformers computes, read and compared with
// (tests/golden/README.md).
//
// The same functions serve every platform: RunnerHarness gives logits, these compare them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "platform/instance.h"
#include "platform/testing/runner_harness.h"

namespace spyre::platform::testing {

// One prompt with what is expected of it.
struct GoldenPrompt {
  std::string name;
  std::vector<int32_t> token_ids;
  std::vector<std::vector<int32_t>> top5_ids;      // per position
  std::vector<std::vector<double>> top5_logprobs;  // descending
  std::vector<int32_t> greedy_ids;                 // empty when there are none
  double hf_float16_logprob = 0;                   // SmolLM2: largest error of transformers' own f16 run
};

// transformers' own 16-bit run (its default attention, sdpa) against its fp32 run, over all positions of the prompt.
// Logits relative to max_abs_logit; the log-probability as it is.
struct GoldenError {
  double logits = 0, logits_rms = 0, top5_logprob = 0;
  bool greedy_ids_equal = false;
};

struct Golden {
  std::string name;
  std::filesystem::path model;  // the checkpoint's folder
  GoldenPrompt prompt;
  std::vector<int64_t> logit_rows;         // positions of |logits|
  std::vector<std::vector<float>> logits;  // fp32, [logit_rows][vocab]
  double max_abs_logit = 0;
  std::map<DType, GoldenError> hf_error;  // f16, bf16
};

// The folders of tests/golden/data that have a checkpoint, sorted.
std::vector<std::filesystem::path> golden_folders();
Golden load_golden(const std::filesystem::path& folder);

// max|difference| and the root mean square, over the recorded positions, as parts of max_abs_logit; |logits| has every
// position of the prompt. A NaN gives infinity.
struct LogitsError {
  double worst = 0, rms = 0;
};
LogitsError logits_error(const Golden& golden, const std::vector<std::vector<float>>& logits);

struct Top5Error {
  double worst = 0, mean = 0;  // of the log-probabilities of the golden ids
  double share_within = 0;     // of them: within 0.01
  int64_t wrong_ids = 0;       // places whose id differs although the neighbours are further away than 2 x |tie|
};
// |logits| has every position of |prompt|.
Top5Error top5_error(const GoldenPrompt& prompt, const std::vector<std::vector<float>>& logits, double tie);

// |count| ids drawn greedily after |prompt| by the instance's worker, its prompt in chunks of |chunk| tokens.
std::vector<int32_t> greedy_ids(Instance& instance, const std::vector<int32_t>& prompt, int64_t count, int64_t chunk);

struct GoldenBounds {
  double logits = 0, logits_rms = 0, top5_logprob = 0;
  bool greedy = true;
};
// fp32: 1e-4 of the largest logit and 1e-3 of a log-probability. 16 bit: transformers' own errors, and equal greedy ids
// where its run has them. The largest of thousands of rounding errors is a draw, and a few positions are ten times as
// sensitive as the rest: so the maxima may be 1.5 times as large as the largest of its run at any position (its largest
// at the recorded ones alone may be lucky), and what tells a worse implementation is the root mean square, which may be
// 1.05 times its.
GoldenBounds golden_bounds(const Golden& golden, DType dtype);

// The whole comparison, with GoogleTest expectations: logits, top-5 and greedy ids of |golden| on |platform| within
// |bounds|, and equal bits for the prompt in chunks of random sizes (|seed|). |config| names dtype and limits; its
// model is |golden|'s.
void expect_golden(const Platform& platform, EngineConfig config, const Golden& golden, const GoldenBounds& bounds,
                   uint64_t seed);

// Equal bits, any NaN equal to any NaN.
bool equal_bits(const std::vector<float>& a, const std::vector<float>& b);

// SmolLM2: top-5 at every position within |bound|, the right ids where they are clear, equal greedy ids where there are
// some. |config| has the model.
void expect_smollm2(const Platform& platform, const EngineConfig& config, const GoldenPrompt& prompt, double bound);

// SmolLM2: the prompts of tests/golden/data/smollm2, and the GGUF file (SPYRE_TEST_MODEL, or models/ of the source
// tree), empty when it is not there.
std::vector<GoldenPrompt> smollm2_prompts();
std::filesystem::path smollm2_model();

}  // namespace spyre::platform::testing
