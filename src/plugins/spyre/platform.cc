#include "plugins/spyre/platform.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/cpu.h"
#include "base/dot_orders.h"
#include "base/error.h"
#include "base/log.h"
#include "platform/limits.h"
#include "plugins/spyre/attention/buckets.h"
#include "plugins/spyre/layers/layers.h"
#include "plugins/spyre/settings.h"
#include "plugins/spyre/sizing/sizing.h"
#include "plugins/spyre/worker/model_runner.h"

namespace spyre::plugin {
namespace {

using platform::EngineConfig;
using platform::Preset;

constexpr int64_t kDefaultBlockSize = 128;
constexpr int64_t kBlockMultiple = 64;

// Families whose activations leave the range of half precision (Gemma 2/3, GLM-4).
bool overflows_half(const formats::ModelConfig& model) {
  return model.model_type.starts_with("gemma2") || model.model_type.starts_with("gemma3") ||
         model.model_type.starts_with("glm4");
}

void complete_dtype(EngineConfig& config, const formats::ModelConfig& model) {
  if (config.preset == Preset::kOriginal && config.dtype && *config.dtype != DType::kF16) {
    throw_error(ErrorCode::kInvalidArgument, "dtype {} needs to be float16 with --preset original",
                to_string(*config.dtype));
  }
  if (config.dtype && !is_16bit_float(*config.dtype)) {
    throw_error(ErrorCode::kInvalidArgument,
                "dtype {} does not exist on the card (no fp32 matmul); use float16 or bfloat16, or --platform cpu",
                to_string(*config.dtype));
  }
  if (config.dtype) return;
  const bool half_file = model.dtype && is_16bit_float(*model.dtype);
  config.dtype = config.preset == Preset::kOriginal ? DType::kF16
                 : half_file                        ? *model.dtype
                 : overflows_half(model)            ? DType::kBF16
                                                    : DType::kF16;
}

void check_numerics(const EngineConfig& config) {
  if (config.numerics == "ieee") return;
  if (config.numerics != "dl16") {
    throw_error(ErrorCode::kInvalidArgument, "numerics '{}' is not known; known: ieee, dl16", config.numerics);
  }
  if (config.checked) {
    throw_error(ErrorCode::kInvalidArgument,
                "checked mode compares bits with the host's and runs in ieee numerics; leave out one of it and dl16");
  }
}

// A page must be whole sticks of keys (rule L-14).
void round_block_size(EngineConfig& config) {
  const int64_t asked = *config.block_size;
  config.block_size = (asked + kBlockMultiple - 1) / kBlockMultiple * kBlockMultiple;
  if (*config.block_size != asked) {
    log().warn("block_size {} rounded up to {}, a multiple of {}", asked, *config.block_size, kBlockMultiple);
  }
}

// Ours: four steps an octave up to the step's budget (docs/performance.md: the card pads 5% of its rows then, a quarter
// with powers of two). The original's: its ladder.
void complete_token_buckets(EngineConfig& config) {
  const int64_t budget = *config.max_num_batched_tokens;
  std::vector<int64_t> given = config.token_buckets.value_or(std::vector<int64_t>{});
  if (given.empty() && config.preset == Preset::kOurs) {
    given = attention::fine_ladder(budget);
  }
  config.token_buckets = attention::token_ladder(budget, *config.max_num_seqs, given);
}

// Here a norm over a head computes the head alone, whatever its padding. The original's would run over the padding too,
// so it refuses these models.
void refuse_norms_of_padded_heads(const nn::Module& model, int64_t head_size) {
  constexpr int64_t kHeadMultiple = 128;
  if (head_size % kHeadMultiple == 0) return;
  nn::walk(model, [&](const nn::Module& module) {
    for (const nn::Parameter* parameter : module.parameters()) {
      if (!parameter->name.ends_with(".q_norm.weight") && !parameter->name.ends_with(".k_norm.weight")) continue;
      throw_error(ErrorCode::kUnsupported,
                  "{} normalises heads of {}, which --preset original pads to {}; leave the preset out",
                  parameter->name, head_size, (head_size + kHeadMultiple - 1) / kHeadMultiple * kHeadMultiple);
    }
  });
}

}  // namespace

void SpyrePlatform::check_and_update_config(EngineConfig& config, const formats::ModelConfig& model) const {
  platform::refuse_parallel(config, "the spyre platform runs on one card");
  check_numerics(config);
  complete_dtype(config, model);
  platform::complete_lengths(config, model, kDefaultBlockSize);
  round_block_size(config);
  complete_token_buckets(config);
  parse_order_choice(config.order);
  platform::check_threads(config);
  if (config.threads == 0) config.threads = usable_cpus();
  (void)Settings::from_environment();
}

void SpyrePlatform::register_layers(nn::LayerRegistry& registry) const {
  layers::register_layers(registry);
}

std::unique_ptr<runner::ModelRunner> SpyrePlatform::create_model_runner(
    const EngineConfig& config, std::shared_ptr<const formats::Checkpoint> checkpoint) const {
  std::unique_ptr<nn::CausalLM> model = platform::build_model(*this, config, checkpoint->config());
  if (config.preset == Preset::kOriginal) refuse_norms_of_padded_heads(*model, checkpoint->config().head_dim);
  return std::make_unique<worker::SpyreModelRunner>(config, Settings::from_environment(), std::move(checkpoint),
                                                    std::move(model));
}

nlohmann::json SpyrePlatform::size_model(const platform::SizingQuestion& question) const {
  return sizing::size_model(*this, question);
}

}  // namespace spyre::plugin
