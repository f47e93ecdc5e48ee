// A worker for a host that schedules by itself (vLLM, through the Python module): the stages of make_instance() one by
// one, in the host's own order, and steps that never end the host.
//
//   construct -> load_model -> kv_cache_spec, kv_cache_bytes -> initialize_kv_cache -> warm_up -> {execute, sample}*
//
// What goes wrong in a step is an answer, not an exception: the requests of a step whose forward pass throws, or whose
// description contradicts what is known, come back in HostedOutput::errors, and the next step may follow. It is for the
// host to end them; until then each gives its error again.
//
// The platform must outlive it. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/export.h"
#include "platform/instance.h"
#include "platform/logprob_table.h"
#include "runner/step.h"

namespace spyre::platform {

struct HostedOutput {
  std::vector<runner::RequestId> ids;        // exactly the scheduled ones, in batch order
  std::vector<std::vector<int32_t>> tokens;  // parallel to ids; empty in a middle chunk of a prompt, and after an error
  // A row for each of ids; none when no token of the step has log-probs.
  std::optional<LogprobTable> logprobs;
  // In the step that ends a prompt, for a request that asked: prompt positions 1, 2, ..., one row each, whatever the
  // number of chunks and preemptions that it took.
  std::vector<std::pair<runner::RequestId, LogprobTable>> prompt_logprobs;
  std::vector<std::pair<runner::RequestId, std::string>> errors;  // one line each
};

using Refusals = std::vector<std::pair<runner::RequestId, std::string>>;  // why, in one line

class SPYRE_API HostedWorker {
 public:
  // Opens config.model and lets |platform| check and complete the config. Throws what these throw. Starts no thread.
  HostedWorker(const Platform& platform, EngineConfig config);
  ~HostedWorker();

  const EngineConfig& config() const;
  int64_t vocab_size() const;

  void load_model(const Progress& progress = {});
  runner::KvCacheSpec kv_cache_spec() const;
  // What size_kv_cache() gives, in bytes of whole blocks; |arithmetic| says how. REQUIRES: the model is loaded.
  int64_t kv_cache_bytes(std::string* arithmetic = nullptr) const;
  void initialize_kv_cache(int64_t num_blocks);  // the null block included
  runner::WarmUpReport warm_up();

  // True: the step has tokens, and sample() must be the next call. False: it had none (finished ids only), and is done.
  // |refused|: requests of the step that are not to be run, because the host's words for them could not be read; of
  // their entries only the block ids and num_computed_tokens count. They fail with the reason given.
  // Throws Error(kFailedPrecondition) out of order, and nothing else.
  bool execute(const runner::Step& step, const Refusals& refused = {});
  // Throws Error(kFailedPrecondition) without execute(). A mask that does not fit ends the requests that it names.
  HostedOutput sample(const runner::GrammarMask* mask = nullptr);

  int64_t num_requests() const;
  // The worker's report, and topic "steps": how many there were, tokens, failures and the seconds they took.
  nlohmann::json report(const std::string& topic) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace spyre::platform
