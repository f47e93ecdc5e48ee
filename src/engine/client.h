// EngineClient: the engine as a host sees it. Any thread may call any of it.
//
// submit() hands over a request that was validated; from then on the callback is called for every step that brings
// something, and each choice ends with exactly one delta that has a finish reason, whatever happens (abort, a fault of
// a step, shutdown). After cancel() the blocks of the request are free by the end of the current step.
#pragma once

#include <cstdint>
#include <string>

#include "engine/request.h"
#include "engine/stats.h"

namespace spyre::engine {

// What the host must know to validate a request before it is submitted.
struct EngineLimits {
  int64_t max_model_len = 0;  // prompt and answer
  int64_t vocab_size = 0;     // of the model's logits
  int64_t max_num_seqs = 0;   // running at once
  int64_t max_queue = 0;      // requests that may wait; more are refused with kResourceExhausted
  int64_t max_logprobs = 20;  // vLLM's default
};

enum class EngineHealth : uint8_t {
  kReady,
  kHung,      // the current step has run for longer than the limit
  kDraining,  // shutdown has begun: what runs is finished, nothing new is taken
  kDead,      // the engine thread has ended
};

class EngineClient {
 public:
  virtual ~EngineClient() = default;

  // Throws Error and calls nothing back: kInvalidArgument for what the engine cannot serve (counts in the message),
  // kResourceExhausted when the queue is full, kUnavailable when draining or dead.
  virtual void submit(Request request, OutputCallback on_output) = 0;
  // Ends all choices of a request as kAbort; an unknown or ended id is no error.
  virtual void cancel(const RequestId& id) = 0;

  virtual EngineLimits limits() const = 0;
  virtual EngineHealth health() const = 0;
  virtual EngineStats stats() const = 0;  // a snapshot
};

}  // namespace spyre::engine
