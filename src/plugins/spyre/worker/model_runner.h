// SpyreModelRunner: one model on one Spyre device. It traces the model at every bucket, compiles what it finds (equal
// blocks share an artifact), places weights, KV cache and activations on the device, and runs steps.
//
// Owned by the runner::Worker; one thread at a time.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "formats/checkpoint.h"
#include "nn/layers/attention.h"
#include "nn/models/causal_lm.h"
#include "platform/config.h"
#include "plugins/spyre/attention/metadata_builder.h"
#include "plugins/spyre/compiler/attention_program.h"
#include "plugins/spyre/compiler/compiler.h"
#include "plugins/spyre/compiler/planned_programs.h"
#include "plugins/spyre/device/device.h"
#include "plugins/spyre/settings.h"
#include "plugins/spyre/worker/model_parts.h"
#include "plugins/spyre/worker/step_trace.h"
#include "plugins/spyre/worker/weight_store.h"
#include "runner/forward.h"

namespace spyre::worker {

class SpyreModelRunner final : public runner::ModelRunner {
 public:
  SpyreModelRunner(const platform::EngineConfig& config, const plugin::Settings& settings,
                   std::shared_ptr<const formats::Checkpoint> checkpoint, std::unique_ptr<nn::CausalLM> model);

  void load_model(const std::function<void(const runner::LoadProgress&)>& progress) override;
  int64_t vocab_size() const override { return model_->vocab_size(); }
  runner::KvCacheSpec kv_cache_spec() const override;
  void initialize_kv_cache(int64_t num_blocks) override;
  runner::WarmUpReport warm_up() override;
  void forward(const runner::ForwardBatch& batch, runner::Logits& logits) override;
  void copy_block(int32_t from, int32_t to) override;
  void zero_block(int32_t block) override;
  void set_layer_tap(runner::LayerTap tap) override { tap_ = std::move(tap); }
  void set_trace(TraceRecorder* trace) override {
    trace_ = trace == nullptr
                 ? nullptr
                 : std::make_unique<StepTrace>(*trace, attention_times_, planned_, settings_.attention_profiling);
  }
  ThreadTeam* thread_team() override { return &device_.team(); }
  nlohmann::json report(const std::string& topic) const override;

  // For tests: what moved, and what was compiled.
  device::SoftwareDevice& device() { return device_; }
  const compiler::Compiler& compiler() const { return compiler_; }
  int64_t compiles_after_ready() const { return compiles_after_ready_; }

 private:
  // One bucket of the body, ready to run: its launches, one a segment, and the tensors that steps write and read.
  struct BodyPlan {
    int64_t bucket = 0;
    std::vector<device::Launch> launches;
    device::DeviceTensor token_ids, positions, slots;
    device::DeviceTensor hidden;  // the beginning of hidden_
  };
  struct HeadPlan {
    device::Launch select;  // of the rows that have logits
    device::DeviceTensor rows;
    std::vector<device::Launch> launches;
    device::DeviceTensor logits;
  };
  using StepTensors = std::map<nn::StepInput, device::DeviceTensor>;
  struct RowTotals {  // of steps since ready
    int64_t live = 0, padding = 0;
    void add(int64_t rows, int64_t bucket) {
      live += rows;
      padding += bucket - rows;
    }
  };

  // The topics of report().
  nlohmann::json artifacts() const;
  nlohmann::json buckets() const;
  nlohmann::json rules_met() const;
  nlohmann::json layouts() const;
  nlohmann::json passes() const;                             // of the compiler: what each did, and for how long
  nlohmann::json text_after(const std::string& pass) const;  // of the programs of the largest body, by graph
  nlohmann::json transfers() const;
  nlohmann::json rows() const;  // what steps computed, and what the card computes beside it
  nlohmann::json memory() const;
  nlohmann::json device_facts() const;
  nlohmann::json warm_up_facts() const;
  nlohmann::json work() const;  // what a step has to read and multiply
  nlohmann::json card_time() const;
  nlohmann::json lx() const;        // what lives in the scratchpad, of programs and of attention's variants
  nlohmann::json settings() const;  // environment variables that the platform reads

  std::map<const nn::Parameter*, ParameterUse> parameter_uses();
  // Compiles |part| for |rows| and binds every segment to tensors, the result of the part to what |place_output| gives
  // for its spec; activations are reused when their last reader has run.
  std::vector<device::Launch> bind(const TracedPart& part, int64_t rows, const StepTensors& inputs,
                                   const std::function<device::DeviceTensor(const device::TensorSpec&)>& place_output);
  BodyPlan& body(int64_t bucket);
  HeadPlan& head(int64_t bucket);
  void record_variants(const attention::StepTables& tables);
  // Estimated card time of the step run last, from its programs and tables.
  double last_step_card_ns() const;
  void upload_step(const BodyPlan& plan, const runner::ForwardBatch& batch);
  // The step's launches: as one region, or one by one where they are traced.
  void run_launches(const attention::StepTables& tables);
  void run_tapped(const BodyPlan& plan, int64_t rows, const attention::StepTables& tables);
  void report_nonfinite(const BodyPlan& plan, int64_t rows, const attention::StepTables& tables,
                        runner::Logits& logits);
  std::shared_ptr<const device::Program> compile(const Unit& unit);
  CompileUnit compiling();
  std::string_view granularity() const;  // "block", "model" or "eager"

  platform::EngineConfig config_;
  plugin::Settings settings_;
  std::shared_ptr<const formats::Checkpoint> checkpoint_;
  std::unique_ptr<nn::CausalLM> model_;
  nn::BlockSet blocks_;  // found by structure
  device::SoftwareDevice device_;
  compiler::Compiler compiler_;
  attention::Bucketer bucketer_;
  std::vector<int64_t> token_ladder_;
  ModelParts parts_;
  std::unique_ptr<WeightStore> weights_;
  std::vector<const nn::Attention*> attention_layers_;
  std::map<const nn::Attention*, device::DeviceTensor> kv_;
  int64_t num_blocks_ = 0;
  std::unique_ptr<attention::MetadataBuilder> metadata_;
  std::map<int64_t, std::unique_ptr<BodyPlan>> bodies_;
  std::map<int64_t, std::unique_ptr<HeadPlan>> heads_;
  device::DeviceTensor hidden_;  // of the largest bucket: what bodies write and selections read
  std::set<attention::Variant> variants_;
  std::vector<const device::Launch*> step_launches_;  // of the step being run
  std::vector<int64_t> step_rows_;
  runner::LayerTap tap_;
  std::unique_ptr<StepTrace> trace_;  // null: not traced
  bool ready_ = false;                // warmed up: compiles are counted, activations are watched
  int64_t compiles_after_ready_ = 0;
  runner::WarmUpReport warm_up_;
  // Accounts: what loading moved, what a step of one token moves and takes on the card.
  device::TransferCounters load_transfers_, step_transfers_;
  RowTotals body_rows_, head_rows_;
  const attention::StepTables* last_tables_ = nullptr;
  double warm_up_card_ns_ = 0;
  mutable compiler::AttentionTimes attention_times_;  // filled when times are asked for
  mutable compiler::PlannedPrograms planned_;
};

}  // namespace spyre::worker
