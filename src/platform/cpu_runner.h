// The ModelRunner of the platform `cpu`: traces the model for exactly the tokens of a step and lets the interpreter run
// the trace. Weights are held once, as fp32 arrays, whatever their storage dtype.
//
// Owned by the runner::Worker; one thread at a time.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/interpreter.h"
#include "nn/loading/loader.h"
#include "nn/models/causal_lm.h"
#include "platform/config.h"
#include "runner/forward.h"

namespace spyre::platform {

// Keeps every parameter as fp32. Weights from block-quantised storage are rounded to f16 on the way: that is the form
// in which every platform runs them, so a comparison in fp32 is about arithmetic and not about another model.
class HostWeights final : public nn::WeightSink {
 public:
  explicit HostWeights(const formats::Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  void begin(const std::vector<const nn::Parameter*>& parameters) override;
  void accept(const nn::Parameter& parameter, nn::HostTensor weights) override;
  // Throws Error(kFailedPrecondition) before the parameter is loaded.
  graph::Array array(const nn::Parameter& parameter) const;
  int64_t bytes() const { return bytes_; }

 private:
  bool is_quantised(const nn::Parameter& parameter) const;

  const formats::Checkpoint& checkpoint_;
  std::map<const nn::Parameter*, nn::HostTensor> tensors_;
  int64_t bytes_ = 0;
};

class CpuModelRunner final : public runner::ModelRunner {
 public:
  CpuModelRunner(const EngineConfig& config, std::shared_ptr<const formats::Checkpoint> checkpoint,
                 std::unique_ptr<nn::CausalLM> model);

  void load_model(const std::function<void(const runner::LoadProgress&)>& progress) override;
  int64_t vocab_size() const override { return model_->vocab_size(); }
  runner::KvCacheSpec kv_cache_spec() const override;
  void initialize_kv_cache(int64_t num_blocks) override;
  runner::WarmUpReport warm_up() override { return {}; }  // nothing is compiled
  void forward(const runner::ForwardBatch& batch, runner::Logits& logits) override;
  void copy_block(int32_t from, int32_t to) override;
  void zero_block(int32_t block) override;
  void set_layer_tap(runner::LayerTap tap) override { tap_ = std::move(tap); }
  nlohmann::json report(const std::string& topic) const override;  // "memory", "model", "all"

 private:
  nn::Trace trace_body(int64_t tokens, nn::BlockSet blocks) const;
  nn::Trace trace_head(int64_t rows) const;
  const nn::Trace& body(int64_t tokens);
  const nn::Trace& head(int64_t rows);
  // Runs the segments of |trace| in order. |after| (optional) sees each segment's outputs.
  using AfterSegment = std::function<void(const nn::Segment&, const std::vector<graph::Array>&)>;
  graph::Array run(const nn::Trace& trace, const runner::ForwardBatch& batch, const graph::Array& hidden,
                   const AfterSegment& after = {});
  graph::Array step_input(nn::StepInput which, const graph::Type& type, const runner::ForwardBatch& batch,
                          const graph::Array& hidden) const;
  graph::Array run_tapped(const runner::ForwardBatch& batch);
  void find_nonfinite(const graph::Array& hidden, const runner::ForwardBatch& batch, runner::Logits& logits);
  void check_block(const char* what, int32_t block) const;

  EngineConfig config_;
  std::shared_ptr<const formats::Checkpoint> checkpoint_;
  std::unique_ptr<nn::CausalLM> model_;
  graph::Interpreter interpreter_;
  HostWeights weights_;
  std::vector<const nn::Attention*> attention_layers_;
  std::map<const nn::Attention*, graph::KvPages> pages_;
  int64_t num_blocks_ = 0;
  runner::LayerTap tap_;
  std::map<int64_t, nn::Trace> bodies_, heads_;  // by number of rows
};

}  // namespace spyre::platform
