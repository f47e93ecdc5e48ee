#include "platform/hosted_worker.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "base/log.h"
#include "platform/failed_requests.h"

namespace spyre::platform {
namespace {

using runner::GrammarMask;
using runner::RequestId;
using runner::RequestOutput;
using runner::Step;
using runner::StepOutput;
using runner::TokenLogprob;

enum class Stage : uint8_t { kOpened, kLoaded, kCacheMade, kReady };

// Of whatever is being thrown: one line.
std::string current_reason() {
  std::string reason = "an exception that is no std::exception";
  try {
    throw;
  } catch (const std::exception& error) {
    reason = error.what();
  } catch (...) {
  }
  std::replace_if(reason.begin(), reason.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return reason;
}

// Adds the time it lives to |seconds|.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double& seconds_;
  Clock::time_point start_ = Clock::now();
};

// A step between execute() and sample().
struct Executed {
  std::vector<RequestId> ids;            // scheduled by the host, in batch order
  std::optional<runner::Ticket> ticket;  // none when nothing of it runs

  bool schedules(const RequestId& id) const { return std::find(ids.begin(), ids.end(), id) != ids.end(); }
};

struct Statistics {
  int64_t steps = 0, tokens = 0, failed_steps = 0;
  double execute_seconds = 0, sample_seconds = 0;
};

std::optional<LogprobTable> side_by_side(const std::vector<std::optional<TokenLogprob>>& entries) {
  int64_t width = 0;
  for (const auto& entry : entries) width = std::max(width, entry ? 1 + std::ssize(entry->top) : 0);
  if (width == 0) return std::nullopt;
  LogprobTable table(std::ssize(entries), width);
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i]) table.set(static_cast<int64_t>(i), *entries[i]);
  }
  return table;
}

}  // namespace

struct HostedWorker::Parts {
  Parts(const Platform& platform, EngineConfig config)
      : platform(platform), model(prepare_model(platform, std::move(config))) {}

  void require(Stage least, const char* call) const;
  void require_no_step(const char* call) const;

  void take_in(const Step& step);
  void run(const Step& step);
  StepOutput draw(const GrammarMask* mask);
  std::string failed_step();
  HostedOutput answer(StepOutput drawn);
  void take_prompt_logprobs(const RequestOutput& given, HostedOutput& output);

  const Platform& platform;
  PreparedModel model;
  Stage stage = Stage::kOpened;
  std::unique_ptr<runner::Worker> worker;  // from load_model() on: its device has threads
  FailedRequests failed;
  // Of requests that asked, until they are finished; without a value once they have been given out.
  std::unordered_map<RequestId, std::optional<PromptLogprobs>> prompts;
  std::optional<Executed> executed;
  Statistics statistics;
};

void HostedWorker::Parts::require(Stage least, const char* call) const {
  constexpr const char* kLeadsPast[] = {"load_model", "initialize_kv_cache", "warm_up"};
  if (stage < least) {
    throw_error(ErrorCode::kFailedPrecondition, "{}: {} comes first", call, kLeadsPast[static_cast<int>(stage)]);
  }
}

void HostedWorker::Parts::require_no_step(const char* call) const {
  if (executed) throw_error(ErrorCode::kFailedPrecondition, "{}: the last step is still to be sampled", call);
}

HostedWorker::HostedWorker(const Platform& platform, EngineConfig config)
    : parts_(std::make_unique<Parts>(platform, std::move(config))) {}

HostedWorker::~HostedWorker() = default;

const EngineConfig& HostedWorker::config() const {
  return parts_->model.config;
}

int64_t HostedWorker::vocab_size() const {
  return parts_->worker ? parts_->worker->vocab_size() : parts_->model.checkpoint->config().vocab_size;
}

// ---------------------------------------------------------------- stages

void HostedWorker::load_model(const Progress& progress) {
  Parts& p = *parts_;
  if (p.stage != Stage::kOpened) throw_error(ErrorCode::kFailedPrecondition, "load_model: the model is loaded already");
  p.worker = make_worker(p.platform, p.model);
  p.worker->load_model(progress);
  p.stage = Stage::kLoaded;
}

runner::KvCacheSpec HostedWorker::kv_cache_spec() const {
  parts_->require(Stage::kLoaded, "kv_cache_spec");
  return parts_->worker->kv_cache_spec();
}

int64_t HostedWorker::kv_cache_bytes(std::string* arithmetic) const {
  const runner::KvCacheSpec spec = kv_cache_spec();
  KvCacheSize size = size_kv_cache(config(), spec);
  if (arithmetic != nullptr) *arithmetic = std::move(size.arithmetic);
  return size.blocks * spec.bytes_per_block;
}

void HostedWorker::initialize_kv_cache(int64_t num_blocks) {
  Parts& p = *parts_;
  p.require(Stage::kLoaded, "initialize_kv_cache");
  p.require_no_step("initialize_kv_cache");
  p.stage = Stage::kLoaded;
  p.failed = FailedRequests(p.worker->kv_cache_spec().block_size);
  p.prompts.clear();
  p.worker->initialize_kv_cache(num_blocks);
  p.stage = Stage::kCacheMade;
}

runner::WarmUpReport HostedWorker::warm_up() {
  Parts& p = *parts_;
  p.require(Stage::kCacheMade, "warm_up");
  p.require_no_step("warm_up");
  runner::WarmUpReport report = p.worker->warm_up();
  p.stage = Stage::kReady;
  return report;
}

// ---------------------------------------------------------------- steps

bool HostedWorker::execute(const Step& step, const Refusals& refused) {
  Parts& p = *parts_;
  p.require(Stage::kReady, "execute");
  p.require_no_step("execute");
  const Stopwatch time(p.statistics.execute_seconds);
  p.take_in(step);
  for (const auto& [id, reason] : refused) p.failed.fail(id, reason, *p.worker);
  Step filtered;
  p.run(p.failed.runnable(step, *p.worker, filtered));
  if (!step.num_scheduled_tokens.empty()) return true;
  p.answer(p.draw(nullptr));
  return false;
}

HostedOutput HostedWorker::sample(const GrammarMask* mask) {
  Parts& p = *parts_;
  if (!p.executed) throw_error(ErrorCode::kFailedPrecondition, "sample: execute comes first");
  const Stopwatch time(p.statistics.sample_seconds);
  return p.answer(p.draw(mask));
}

void HostedWorker::Parts::take_in(const Step& step) {
  ++statistics.steps;
  failed.finish(step.finished);
  for (const RequestId& id : step.finished) prompts.erase(id);
  for (const runner::NewRequest& request : step.new_requests) {
    if (!request.sampling.prompt_logprobs) continue;
    prompts.try_emplace(request.id, PromptLogprobs(std::ssize(request.prompt_token_ids),
                                                   *request.sampling.prompt_logprobs, worker->vocab_size()));
  }
  executed.emplace();
  executed->ids.reserve(step.num_scheduled_tokens.size());
  for (const auto& [id, tokens] : step.num_scheduled_tokens) {
    executed->ids.push_back(id);
    statistics.tokens += tokens;
  }
}

// A step that throws may have been applied or not; its finished ids are forgotten in either case.
void HostedWorker::Parts::run(const Step& step) {
  try {
    executed->ticket = worker->execute(step);
  } catch (...) {
    const std::string reason = failed_step();
    failed.fail_all(step, reason, *worker);
    worker->sample(worker->execute({.finished = step.finished}));  // nothing here can contradict the worker
  }
}

// The tokens of what runs. An exception that the mask is to blame for leaves the ticket as it was; any other ends it.
StepOutput HostedWorker::Parts::draw(const GrammarMask* mask) {
  if (!executed->ticket) return {};
  try {
    GrammarMask filtered;
    try {
      return worker->sample(*executed->ticket, mask ? &failed.runnable(*mask, filtered) : nullptr);
    } catch (const Error& error) {
      if (mask == nullptr || error.code() != ErrorCode::kInvalidArgument) throw;
      for (const RequestId& id : mask->request_ids) {
        if (executed->schedules(id)) failed.fail(id, current_reason(), *worker);
      }
      return worker->sample(*executed->ticket);
    }
  } catch (...) {
    const std::string reason = failed_step();
    for (const RequestId& id : executed->ids) failed.fail(id, reason, *worker);
    return {};
  }
}

std::string HostedWorker::Parts::failed_step() {
  ++statistics.failed_steps;
  std::string reason = "the step failed: " + current_reason();
  log().error("{} requests: {}", executed->ids.size(), reason);
  return reason;
}

HostedOutput HostedWorker::Parts::answer(StepOutput drawn) {
  HostedOutput output;
  output.ids = std::move(executed->ids);
  executed.reset();
  output.tokens.resize(output.ids.size());
  std::vector<std::optional<TokenLogprob>> logprobs(output.ids.size());
  auto given = drawn.requests.begin();
  for (size_t i = 0; i < output.ids.size(); ++i) {
    const RequestId& id = output.ids[i];
    RequestOutput ran{.id = id, .error = std::nullopt};
    if (given != drawn.requests.end() && given->id == id) ran = std::move(*given++);
    if (!ran.error && !failed.find(id)) take_prompt_logprobs(ran, output);
    if (const std::string* reason = failed.find(id)) ran.error = *reason;
    if (ran.error) {
      prompts.erase(id);
      output.errors.emplace_back(id, std::move(*ran.error));
      continue;
    }
    if (!ran.logprobs.empty()) logprobs[i] = std::move(ran.logprobs[0]);
    output.tokens[i] = std::move(ran.tokens);
  }
  output.logprobs = side_by_side(logprobs);
  return output;
}

// A request's first token ends its prompt.
void HostedWorker::Parts::take_prompt_logprobs(const RequestOutput& given, HostedOutput& output) {
  const auto found = prompts.find(given.id);
  if (found == prompts.end() || !found->second) return;
  PromptLogprobs& prompt = *found->second;
  prompt.add(given.prompt_logprobs_start, given.prompt_logprobs);
  if (given.tokens.empty()) return;
  if (!prompt.complete()) {
    failed.fail(given.id,
                fmt::format("request '{}': the log-probs of its prompt are missing from position {} on: what is there "
                            "was taken from the prefix cache",
                            given.id, prompt.next_position()),
                *worker);
    return;
  }
  output.prompt_logprobs.emplace_back(given.id, prompt.take());
  found->second.reset();
}

// ---------------------------------------------------------------- accounts

int64_t HostedWorker::num_requests() const {
  const Parts& p = *parts_;
  if (!p.worker) return 0;
  return p.worker->num_requests() + p.failed.unknown_to(*p.worker);
}

nlohmann::json HostedWorker::report(const std::string& topic) const {
  const Parts& p = *parts_;
  if (topic != "steps") return p.worker ? p.worker->report(topic) : nlohmann::json();
  return {{"steps", p.statistics.steps},
          {"tokens", p.statistics.tokens},
          {"failed_steps", p.statistics.failed_steps},
          {"execute_seconds", p.statistics.execute_seconds},
          {"sample_seconds", p.statistics.sample_seconds}};
}

}  // namespace spyre::platform
