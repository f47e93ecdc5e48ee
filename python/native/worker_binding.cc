#include <nanobind/stl/string.h>

#include <cstdint>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "platform/hosted_worker.h"
#include "python/native/bindings.h"
#include "python/native/platforms.h"
#include "python/native/scheduler_output.h"
#include "python/native/settings.h"
#include "python/native/step_output.h"
#include "python/native/values.h"

namespace spyre::python {
namespace {

using platform::HostedOutput;

const platform::Platform& platform_of(const platform::EngineConfig& config) {
  return platforms().get(config.platform);
}

// platform::HostedWorker for Python. What computes or waits runs without the GIL, under a mutex of its own, so that a
// second Python thread (one that asks for a report, say) waits for its turn.
class WorkerBinding {
 public:
  explicit WorkerBinding(const nb::dict& settings) : WorkerBinding(read_settings(settings)) {}

  nb::dict config() const { return write_settings(worker_.config()); }
  int64_t vocab_size() const { return worker_.vocab_size(); }
  int64_t num_requests() {
    return without_gil([this] { return worker_.num_requests(); });
  }

  void load_model() {
    without_gil([this] { worker_.load_model(); });
  }

  nb::dict kv_cache_spec() {
    const runner::KvCacheSpec spec = without_gil([this] { return worker_.kv_cache_spec(); });
    nb::dict result;
    result["block_size"] = spec.block_size;
    result["bytes_per_block"] = spec.bytes_per_block;
    result["num_groups"] = spec.num_groups;
    return result;
  }

  nb::tuple kv_cache_bytes() {
    std::string arithmetic;
    const int64_t bytes = without_gil([&] { return worker_.kv_cache_bytes(&arithmetic); });
    return nb::make_tuple(bytes, arithmetic);
  }

  void initialize_kv_cache(int64_t num_blocks) {
    without_gil([&] { worker_.initialize_kv_cache(num_blocks); });
  }

  nb::dict warm_up() {
    const runner::WarmUpReport report = without_gil([this] { return worker_.warm_up(); });
    nb::dict result;
    result["programs_compiled"] = report.programs_compiled;
    result["variants_recorded"] = report.variants_recorded;
    result["compile_seconds"] = report.compile_seconds;
    result["execute_seconds"] = report.execute_seconds;
    return result;
  }

  bool execute(nb::handle scheduler_output);
  StepOutput sample(nb::handle grammar_output);

  nb::object report(const std::string& topic) {
    return to_python(without_gil([&] { return worker_.report(topic); }));
  }

 private:
  explicit WorkerBinding(const platform::EngineConfig& config) : worker_(platform_of(config), config) {}

  template <typename F>
  std::invoke_result_t<F> without_gil(const F& f) {
    const nb::gil_scoped_release release;
    const std::lock_guard lock(mutex_);  // given back before the GIL is taken: the two cannot wait for each other
    return f();
  }

  platform::HostedWorker worker_;
  std::vector<runner::RequestId> executed_;  // scheduled by the last step, for sample()
  std::mutex mutex_;
};

bool WorkerBinding::execute(nb::handle scheduler_output) {
  ScheduledStep step = read_scheduler_output(scheduler_output);
  const bool has_tokens = without_gil([&] { return worker_.execute(step.step, step.refused); });
  executed_.clear();
  for (auto& [id, tokens] : step.step.num_scheduled_tokens) executed_.push_back(std::move(id));
  return has_tokens;
}

// A mask that cannot be read is handed on as one that fits nobody: it ends the requests of the step.
StepOutput WorkerBinding::sample(nb::handle grammar_output) {
  std::optional<runner::GrammarMask> mask;
  std::string unreadable;
  try {
    mask = read_grammar_output(grammar_output);
  } catch (const std::exception& error) {
    unreadable = one_line(error);
    mask.emplace();
    mask->request_ids = executed_;
    mask->rows.resize(executed_.size());
  }
  HostedOutput output = without_gil([&] { return worker_.sample(mask ? &*mask : nullptr); });
  if (!unreadable.empty()) {
    for (auto& [id, text] : output.errors) text = unreadable;
  }
  return StepOutput(std::move(output));
}

}  // namespace

void bind_hosted_worker(nb::module_& m) {
  nb::class_<StepOutput>(m, "StepOutput", "What one step gave; lists are parallel to req_ids.")
      .def_ro("req_ids", &StepOutput::req_ids)
      .def_ro("token_ids", &StepOutput::token_ids)
      .def_ro("logprobs", &StepOutput::logprobs)
      .def_ro("prompt_logprobs", &StepOutput::prompt_logprobs)
      .def_ro("errors", &StepOutput::errors);

  nb::class_<WorkerBinding>(m, "HostedWorker", "The worker of a host that schedules by itself.")
      .def(nb::init<const nb::dict&>(), nb::arg("settings"))
      .def_prop_ro("config", &WorkerBinding::config)
      .def_prop_ro("vocab_size", &WorkerBinding::vocab_size)
      .def_prop_ro("num_requests", &WorkerBinding::num_requests)
      .def("load_model", &WorkerBinding::load_model)
      .def("kv_cache_spec", &WorkerBinding::kv_cache_spec)
      .def("kv_cache_bytes", &WorkerBinding::kv_cache_bytes,
           "Bytes for the cache, whole blocks, and how they came about.")
      .def("initialize_kv_cache", &WorkerBinding::initialize_kv_cache, nb::arg("num_blocks"))
      .def("warm_up", &WorkerBinding::warm_up)
      .def("execute", &WorkerBinding::execute, nb::arg("scheduler_output"), "True when sample() must follow.")
      .def("sample", &WorkerBinding::sample, nb::arg("grammar_output") = nb::none())
      .def("report", &WorkerBinding::report, nb::arg("topic"));
}

}  // namespace spyre::python
