// How long every bucket of a model takes to trace and compile, on one core and without weights: compile_bench [LAYERS
// [HIDDEN [MAX_MODEL_LEN [MAX_NUM_BATCHED_TOKENS]]]]
//
// The model is Llama-shaped (heads of 128, four query heads to a KV head, an MLP of 3.5 x hidden, 128,256 tokens). What
// is timed is what warm-up does before it runs a step: one trace, a body, a head and a selection of rows per token
// bucket, and the attention variants. Compilers share artifacts, so each sample has one of its own.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "formats/model_config.h"
#include "nn/models/causal_lm.h"
#include "plugins/spyre/attention/buckets.h"
#include "plugins/spyre/compiler/compiler.h"
#include "plugins/spyre/platform.h"
#include "plugins/spyre/worker/model_parts.h"

namespace {

using namespace spyre;

constexpr int kSamples = 5;

formats::ModelConfig llama_config(int64_t layers, int64_t hidden, int64_t max_len) {
  const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                 {"model_type", "llama"},
                                 {"hidden_size", hidden},
                                 {"intermediate_size", hidden * 7 / 2},
                                 {"num_hidden_layers", layers},
                                 {"num_attention_heads", hidden / 128},
                                 {"num_key_value_heads", std::max<int64_t>(1, hidden / 512)},
                                 {"head_dim", 128},
                                 {"vocab_size", 128256},
                                 {"max_position_embeddings", max_len},
                                 {"rms_norm_eps", 1e-5},
                                 {"tie_word_embeddings", false},
                                 {"torch_dtype", "bfloat16"}};
  return formats::parse_model_config(config.dump(), "", "config.json", "");
}

struct Timing {
  double trace = 0, compile = 0, all = 0;  // seconds
  int64_t programs = 0, variants = 0;
};

class Stopwatch {
 public:
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(from_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point from_ = std::chrono::steady_clock::now();
};

class Bench {
 public:
  Bench(const nn::CausalLM& model, const platform::EngineConfig& config)
      : model_(model), config_(config), blocks_(nn::find_blocks(model)) {}

  Timing sample() const {
    compiler::Compiler compiler({.features = CpuFeatures::capped_by_environment()});
    const auto compile = [&](const worker::Unit& unit) { return compiler.compile(unit.graph, unit.boundary); };
    Timing timing;
    Stopwatch watch;
    const std::vector<int64_t>& ladder = *config_.token_buckets;
    const worker::ModelParts parts(model_, blocks_, *config_.dtype, ladder.back());
    timing.trace = watch.lap();
    for (const int64_t bucket : ladder) {
      (void)parts.body().compile(bucket, compile);
      (void)parts.head().compile(bucket, compile);
      (void)compile(parts.select_rows(bucket));
    }
    timing.compile = watch.lap();
    const attention::Bucketer bucketer({.block_size = *config_.block_size,
                                        .max_model_len = *config_.max_model_len,
                                        .max_num_batched_tokens = *config_.max_num_batched_tokens,
                                        .max_num_seqs = *config_.max_num_seqs});
    timing.variants = std::ssize(bucketer.all_variants());
    timing.all = timing.trace + timing.compile + watch.lap();
    timing.programs = compiler.artifacts();
    return timing;
  }

 private:
  const nn::CausalLM& model_;
  const platform::EngineConfig& config_;
  nn::BlockSet blocks_;
};

void run(int64_t layers, int64_t hidden, int64_t max_len, int64_t budget) {
  const plugin::SpyrePlatform platform;
  const formats::ModelConfig model_config = llama_config(layers, hidden, max_len);
  platform::EngineConfig config;
  config.max_model_len = max_len;
  config.max_num_batched_tokens = budget;
  config.threads = 1;
  platform.check_and_update_config(config, model_config);
  const auto model = platform::build_model(platform, config, model_config);
  const Bench bench(*model, config);
  std::vector<Timing> samples;
  for (int i = 0; i < kSamples; ++i) samples.push_back(bench.sample());
  std::sort(samples.begin(), samples.end(), [](const Timing& a, const Timing& b) { return a.all < b.all; });
  const Timing& t = samples[kSamples / 2];
  fmt::print("{} layers of {}, length {}, {} token buckets up to {}: {} programs, {} attention variants\n", layers,
             hidden, max_len, config.token_buckets->size(), config.token_buckets->back(), t.programs, t.variants);
  fmt::print("every bucket in {:.3f} s on one core (trace {:.3f}, compile {:.3f}); median of {}, {:.3f} to {:.3f}\n",
             t.all, t.trace, t.compile, kSamples, samples.front().all, samples.back().all);
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, int64_t initial) { return argc > i ? std::atoll(argv[i]) : initial; };
  try {
    run(argument(1, 32), argument(2, 4096), argument(3, 8192), argument(4, 512));
  } catch (const std::exception& error) {
    fmt::print(stderr, "compile_bench: {}\n", error.what());
    return 1;
  }
}
