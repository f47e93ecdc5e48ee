// Drives a ModelRunner directly: a step is written as pieces of sequences, and the logits come back as they are, before
// any sampling. For tests of platforms; what goes through the worker is tested there.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "platform/platform.h"
#include "runner/forward.h"

namespace spyre::platform::testing {

// The next tokens of one sequence.
struct Piece {
  std::vector<int32_t> tokens;
  int64_t start = 0;            // position of the first one
  std::vector<int32_t> blocks;  // the sequence's block table
  enum class Rows { kNone, kLast, kAll } rows = Rows::kLast;
};

class RunnerHarness {
 public:
  // Config checked, model loaded, KV cache of |num_blocks| (0: one sequence of max_model_len and the null block) made
  // and warmed up. |platform| must outlive it.
  RunnerHarness(const Platform& platform, EngineConfig config, int64_t num_blocks = 0);

  // The logits of the wanted rows, in order; also kept with their errors in last().
  std::vector<std::vector<float>> run(const std::vector<Piece>& pieces);
  const runner::Logits& last() const { return logits_; }

  // Logits of every token of |tokens|, run in chunks of the given sizes (the last may reach beyond the end; sizes
  // repeat).
  std::vector<std::vector<float>> prefill(const std::vector<int32_t>& tokens, const std::vector<int64_t>& chunks,
                                          const std::vector<int32_t>& blocks);

  // Block ids first, first + 1, ... for a sequence of |tokens|. Block 0 is the null block.
  std::vector<int32_t> blocks_for(int64_t tokens, int32_t first = 1) const;

  const EngineConfig& config() const { return config_; }
  const formats::ModelConfig& model() const { return checkpoint_->config(); }
  const runner::KvCacheSpec& spec() const { return spec_; }
  int64_t num_blocks() const { return num_blocks_; }
  runner::ModelRunner& runner() { return *runner_; }

 private:
  EngineConfig config_;
  std::shared_ptr<const formats::Checkpoint> checkpoint_;
  std::unique_ptr<runner::ModelRunner> runner_;
  runner::KvCacheSpec spec_;
  int64_t num_blocks_ = 0;
  runner::Logits logits_;
};

}  // namespace spyre::platform::testing
