#include "cli/bench_drive.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/build_id.h"
#include "base/error.h"

namespace spyre::cli {
namespace {

using nlohmann::json;

std::vector<engine::Request> read_requests(const json& what) {
  const auto output = what.at("output_tokens").get<int64_t>();
  std::vector<engine::Request> requests;
  for (const json& prompt : what.at("prompts")) {
    engine::Request r;
    r.prompt_ids = prompt.get<std::vector<int32_t>>();
    r.sampling = {.temperature = 0, .max_tokens = output, .ignore_eos = true};
    requests.push_back(std::move(r));
  }
  return requests;
}

}  // namespace

BenchDrive::BenchDrive(OpenModel& open)
    : open_(open),
      engine_(*open.instance.worker,
              {.num_blocks = open.instance.num_kv_blocks, .prefix_caching = false, .max_token_gap = 3600}) {}

json BenchDrive::opened() const {
  const platform::EngineConfig& config = open_.instance.config;
  const runner::WarmUpReport& warm_up = open_.instance.warm_up;
  const runner::Worker& worker = *open_.instance.worker;
  return {{"model", config.model.string()},
          {"build", build_id()},
          {"platform", config.platform},
          {"dtype", to_string(*config.dtype)},
          {"order", config.order},
          {"device", worker.report("device")},
          {"work", worker.report("work")},
          {"vocab_size", worker.vocab_size()},
          {"max_model_len", worker.config().max_model_len},
          {"start",
           {{"ready_seconds", seconds_since_start()},
            {"compile_seconds", warm_up.compile_seconds},
            {"execute_seconds", warm_up.execute_seconds},
            {"programs_compiled", warm_up.programs_compiled}}}};
}

json BenchDrive::run(const json& what) {
  using Clock = std::chrono::steady_clock;
  std::vector<engine::Request> requests = read_requests(what);
  std::vector<std::vector<double>> times(requests.size());
  std::string error;
  for (const engine::Request& r : requests) engine_.check(r);  // all of them before any is submitted
  const Clock::time_point begin = Clock::now();
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].id = fmt::format("drive-{}-{}", runs_, i);
    engine_.submit(std::move(requests[i]), [&, i](const engine::OutputDelta& delta) {
      const double now = std::chrono::duration<double>(Clock::now() - begin).count();
      times[i].insert(times[i].end(), delta.token_ids.size(), now);
      if (delta.finish_reason == engine::FinishReason::kError) error = delta.error;
    });
  }
  ++runs_;
  while (engine_.step()) {
    if (!interrupted) continue;
    engine_.end_all(engine::FinishReason::kAbort);
    throw_error(ErrorCode::kCancelled, "interrupted");
  }
  if (!error.empty()) return {{"error", error}};
  return {{"times", times}};
}

json BenchDrive::limits(const json& what) const {
  const runner::Worker& worker = *open_.instance.worker;
  const json peak = worker.report("meters/peak");
  if (peak.is_null()) return {{"instruction", nullptr}, {"gflops", nullptr}, {"gbps", nullptr}, {"threads", nullptr}};
  const json stream = worker.report("meters/stream/" + std::to_string(what.at("stream_bytes").get<int64_t>()));
  return {{"instruction", peak.at("instruction")},
          {"gflops", peak.at("gflops")},
          {"gbps", stream.at("gbps")},
          {"threads", peak.at("threads")}};
}

json BenchDrive::answer(std::string_view line) {
  try {
    const json question = json::parse(line);
    if (question.contains("run")) return run(question["run"]);
    if (question.contains("limits")) return limits(question["limits"]);
    if (question.contains("report")) {
      return {{"report", open_.instance.worker->report(question["report"].get<std::string>())}};
    }
    return {{"error", "known questions: run, limits, report"}};
  } catch (const json::exception& error) {
    return {{"error", error.what()}};
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCancelled) throw;
    return {{"error", error.what()}};
  }
}

}  // namespace spyre::cli
