// The worker contract, part 3: the worker itself. It owns token histories, the model runner and the sampler; hosts (our
// engine, or vLLM through the Python module) drive it step by step.
//
// execute(step) runs the forward pass and returns a ticket; sample(ticket, mask) draws the tokens of that step, appends
// them to the histories and returns them. At most two tickets may be outstanding, and they are sampled in order. All
// calls come from one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/export.h"
#include "runner/forward.h"
#include "runner/input_batch.h"
#include "runner/sampler.h"
#include "runner/step.h"

namespace spyre::runner {

struct WorkerConfig {
  int64_t max_model_len = 0;
  int64_t max_num_batched_tokens = 0;
  int64_t max_num_seqs = 0;
};

using Ticket = uint64_t;

class SPYRE_API Worker {
 public:
  // |sampler| may be replaced in tests (the recorded scheduler traces follow an engine rule of their own).
  Worker(std::unique_ptr<ModelRunner> runner, const WorkerConfig& config, std::unique_ptr<TokenSampler> sampler = nullptr);

  void load_model(const std::function<void(const LoadProgress&)>& progress = {});
  KvCacheSpec kv_cache_spec() const;
  void initialize_kv_cache(int64_t num_blocks);
  WarmUpReport warm_up();

  // Throws Error(kInvalidArgument) for a step that contradicts what is known (nothing applied), or what forward()
  // throws (the step's requests keep their history; the host ends or retries them).
  Ticket execute(const Step& step);
  // REQUIRES: |ticket| is the oldest outstanding one. A step without tokens gives an empty output.
  StepOutput sample(Ticket ticket, const GrammarMask* mask = nullptr);

  int64_t vocab_size() const { return runner_->vocab_size(); }
  const RequestState* find(const RequestId& id) const;
  nlohmann::json report(const std::string& topic) const;

 private:
  struct InFlight {
    Ticket ticket = 0;
    std::vector<ScheduledRequest> scheduled;
    Logits logits;
  };

  std::unique_ptr<ModelRunner> runner_;
  WorkerConfig config_;
  std::unique_ptr<TokenSampler> sampler_;
  std::optional<InputBatch> batch_;   // made by initialize_kv_cache
  std::array<InFlight, 2> in_flight_;
  Ticket next_ticket_ = 1;
  int outstanding_ = 0;
};

}  // namespace spyre::runner
