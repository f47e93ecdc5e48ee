// The worker contract, part 3: the worker itself. It owns token histories, the model runner and the sampler; hosts (our
// engine, or vLLM through the Python module) drive it step by step.
//
// execute(step) runs the forward pass and returns a ticket; sample(ticket, mask) draws the tokens of that step, appends
// them to the histories and returns them. At most two tickets may be outstanding, and they are sampled in order. A step
// that reads a token which the older ticket has still to draw is accepted, and its forward pass waits for that draw.
// All calls come from one thread at a time. The rows of a step are sampled by all threads of the runner's team.
//
// One request's trouble (an empty grammar mask, non-finite logits or activations, bad sampling parameters) ends in its
// RequestOutput::error and nowhere else: the request stays known and gives the same error until it is finished. Its KV
// blocks may hold non-finite values and should not be kept as a prefix.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
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
  // |sampler| may be replaced in tests (the recorded scheduler traces follow an engine rule of their own); rows are
  // then sampled one after the other.
  Worker(std::unique_ptr<ModelRunner> runner, const WorkerConfig& config,
         std::unique_ptr<TokenSampler> sampler = nullptr);

  void load_model(const std::function<void(const LoadProgress&)>& progress = {});
  KvCacheSpec kv_cache_spec() const;
  // Throws Error(kUnsupported) when the model has more than one KV cache group, Error(kInvalidArgument) for a limit out
  // of range, and what the runner throws. Forgets all requests; REQUIRES: no ticket is outstanding.
  void initialize_kv_cache(int64_t num_blocks);
  WarmUpReport warm_up();

  // Throws Error(kInvalidArgument) for a step that contradicts what is known (nothing applied),
  // Error(kFailedPrecondition) before initialize_kv_cache or with two tickets outstanding, or what forward() throws. In
  // that last case there is no ticket, the requests of the step are known with their histories and block tables as the
  // step described them, and nothing more is computed: the host ends them or schedules the same tokens again.
  Ticket execute(const Step& step);
  // REQUIRES: |ticket| is the oldest outstanding one (else Error(kFailedPrecondition)). A step without tokens gives an
  // empty output. A mask that does not fit throws Error(kInvalidArgument) and leaves the ticket outstanding; any other
  // throw (the forward pass of a step that waited) ends the ticket.
  StepOutput sample(Ticket ticket, const GrammarMask* mask = nullptr);

  // See ModelRunner::set_layer_tap.
  void set_layer_tap(LayerTap tap) { runner_->set_layer_tap(std::move(tap)); }
  // Spans of execute() and sample(), and what the runner has to tell; null ends it. See ModelRunner::set_trace.
  void set_trace(TraceRecorder* trace) {
    trace_ = trace;
    runner_->set_trace(trace);
  }
  int64_t vocab_size() const { return runner_->vocab_size(); }
  const WorkerConfig& config() const { return config_; }
  const RequestState* find(const RequestId& id) const;
  int64_t num_requests() const { return batch_ ? batch_->size() : 0; }
  nlohmann::json report(const std::string& topic) const;

 private:
  struct InFlight {
    Ticket ticket = 0;
    std::vector<ScheduledRequest> scheduled;
    Logits logits;
    bool waiting = false;          // its forward pass is still to run
    std::exception_ptr exception;  // of a forward pass that waited
  };
  using MaskRows = std::unordered_map<RequestId, std::span<const uint32_t>>;
  struct Lane {  // what a thread needs to sample a row
    std::unique_ptr<TokenSampler> sampler;
    VocabRow row;  // of the prompt, being scored
  };

  InFlight& slot(Ticket ticket) { return in_flight_[ticket % in_flight_.size()]; }
  void forward(InFlight& step);
  void run_waiting(InFlight& step);
  void end(InFlight& step);
  MaskRows rows_by_id(const GrammarMask& mask, const InFlight& step) const;
  void sample_rows(const InFlight& step, const MaskRows& rows, StepOutput& output);
  RequestOutput sample_request(const ScheduledRequest& request, const Logits& logits, std::span<const uint32_t> allowed,
                               Lane& lane);

  std::unique_ptr<ModelRunner> runner_;
  WorkerConfig config_;
  std::vector<Lane> lanes_;          // by member of the team; one without a team
  std::vector<uint8_t> drawn_;       // of the step being sampled: which requests are done
  std::optional<InputBatch> batch_;  // made by initialize_kv_cache
  std::array<InFlight, 2> in_flight_;
  TraceRecorder* trace_ = nullptr;
  Ticket next_ticket_ = 1;
  Ticket oldest_ticket_ = 1;  // outstanding: oldest_ticket_ .. next_ticket_ - 1
};

}  // namespace spyre::runner
