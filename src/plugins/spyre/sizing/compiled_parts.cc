// A step's parts from the programs that one card runs.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "formats/model_config.h"
#include "nn/models/causal_lm.h"
#include "plugins/spyre/attention/buckets.h"
#include "plugins/spyre/compiler/compiler.h"
#include "plugins/spyre/compiler/planned_programs.h"
#include "plugins/spyre/device/op_work.h"
#include "plugins/spyre/device/program_json.h"
#include "plugins/spyre/sizing/step_cost.h"
#include "plugins/spyre/worker/model_parts.h"

namespace spyre::sizing {
namespace {

using device::CostConfig;
using nlohmann::json;

// The configuration of one card's part: a model of its own, as far as programs go.
json config_of_card(json config, const ModelShape& shape, const CardShare& share) {
  config["num_attention_heads"] = share.heads;
  config["num_key_value_heads"] = share.kv_heads;
  config["head_dim"] = shape.head_size;
  config["intermediate_size"] = share.mlp;
  config["vocab_size"] = share.vocab_rows;
  // Ids of the whole vocabulary mean nothing to a part of it.
  for (const char* key : {"bos_token_id", "eos_token_id"}) config.erase(key);
  return config;
}

class CompiledParts final : public StepParts {
 public:
  CompiledParts(const platform::Platform& platform, const json& config, int64_t length, int64_t step_tokens)
      : model_config_(formats::parse_model_config(config.dump(), "", "config.json", "")),
        compiler_({.features = CpuFeatures::capped_by_environment()}) {
    config_.max_model_len = length;
    config_.max_num_batched_tokens = step_tokens;
    config_.max_num_seqs = std::min<int64_t>(step_tokens, 256);
    config_.threads = 1;
    platform.check_and_update_config(config_, model_config_);
    model_ = platform::build_model(platform, config_, model_config_);
    parts_.emplace(*model_, nn::find_blocks(*model_), *config_.dtype, config_.token_buckets->back());
  }

  PartCost body(const CostConfig& config, int64_t rows) override { return cost(config, programs(bodies_, rows)); }
  PartCost head(const CostConfig& config, int64_t rows) override { return cost(config, programs(heads_, rows)); }

  int64_t pool_bytes(int64_t rows) override {
    int64_t most = 0;
    for (auto* parts : {&bodies_, &heads_}) {
      for (const auto& program : programs(*parts, rows)) most = std::max(most, program->card.pool_bytes);
    }
    return most;
  }

  json programs(int64_t rows) override {
    json out = json::array();
    for (auto* parts : {&bodies_, &heads_}) {
      std::map<const device::Program*, size_t> known;
      for (const auto& program : programs(*parts, rows)) {
        const auto [found, inserted] = known.try_emplace(program.get(), out.size());
        if (inserted) {
          out.push_back(device::program_json(*program, planned_.of(*program).plan));
          out.back()["part"] = parts == &bodies_ ? "body" : "head";
          out.back()["rows"] = bucket_of(rows);
          out.back()["launches"] = 0;
        }
        json& launches = out[found->second]["launches"];
        launches = launches.get<int64_t>() + 1;
      }
    }
    return out;
  }

 private:
  using Programs = std::vector<std::shared_ptr<const device::Program>>;

  int64_t bucket_of(int64_t rows) const {
    return attention::round_up_in(*config_.token_buckets, rows).value_or(config_.token_buckets->back());
  }

  const Programs& programs(std::map<int64_t, Programs>& known, int64_t rows) {
    const int64_t bucket = bucket_of(rows);
    Programs& programs = known[bucket];
    if (programs.empty()) {
      const worker::TracedPart& part = &known == &bodies_ ? parts_->body() : parts_->head();
      programs = part.compile(
          bucket, [this](const worker::Unit& unit) { return compiler_.compile(unit.graph, unit.boundary); });
    }
    return programs;
  }

  PartCost cost_of_program(const CostConfig& config, const device::Program& program) {
    const device::CardPlan& plan = planned_.of(program).plan;
    PartCost cost{.ns = config.launch_ns.value};
    for (const device::Bundle& bundle : device::bundles_of(program.graph, plan, config)) {
      cost += {.ns = bundle.time.total(), .compute_ns = bundle.time.compute, .memory_ns = bundle.time.memory};
    }
    for (const device::DeviceOp& op : plan.ops) {
      cost += {.read_bytes = op.read_bytes, .write_bytes = op.write_bytes, .macs = op.macs};
    }
    return cost;
  }

  // Equal layers share a program: it is looked at once.
  PartCost cost(const CostConfig& config, const Programs& programs) {
    std::map<const device::Program*, PartCost> known;
    PartCost sum;
    for (const auto& program : programs) {
      const auto [found, inserted] = known.try_emplace(program.get());
      if (inserted) found->second = cost_of_program(config, *program);
      sum += found->second;
    }
    return sum;
  }

  formats::ModelConfig model_config_;
  compiler::Compiler compiler_;
  platform::EngineConfig config_;
  std::unique_ptr<nn::CausalLM> model_;
  std::optional<worker::ModelParts> parts_;
  std::map<int64_t, Programs> bodies_, heads_;
  compiler::PlannedPrograms planned_;
};

}  // namespace

std::unique_ptr<StepParts> parts_from_programs(const platform::Platform& platform, const json& config,
                                               const ModelShape& shape, const CardShare& share, int64_t length,
                                               int64_t step_tokens) {
  return std::make_unique<CompiledParts>(platform, config_of_card(config, shape, share), length, step_tokens);
}

}  // namespace spyre::sizing
