// The engine of the native server without HTTP: what spyre_inference.Engine is the face of.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/generate.h"
#include "platform/instance.h"
#include "python/native/bindings.h"
#include "python/native/platforms.h"
#include "python/native/sampling_params.h"
#include "python/native/settings.h"
#include "python/native/values.h"
#include "text/model_tokenizer.h"

namespace spyre::python {
namespace {

using Clock = std::chrono::steady_clock;
using LogitsArray = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

constexpr auto kSignalInterval = std::chrono::milliseconds(50);

// Lets Python handle its signals, at most 20 times a second: Ctrl-C throws KeyboardInterrupt. For a thread without the
// GIL, which another thread may hold for long.
class SignalWatch {
 public:
  void operator()() {
    const auto now = Clock::now();
    if (now < next_) return;
    next_ = now + kSignalInterval;
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }

 private:
  Clock::time_point next_ = Clock::now() + kSignalInterval;
};

// One call at a time; the others wait, and Ctrl-C ends the wait. For a thread without the GIL.
class Turn {
 public:
  Turn(std::timed_mutex& mutex, SignalWatch& signals) : lock_(mutex, std::defer_lock) {
    while (!lock_.try_lock_for(kSignalInterval)) signals();
  }

 private:
  std::unique_lock<std::timed_mutex> lock_;
};

class PythonEngine {
 public:
  explicit PythonEngine(const nb::dict& settings);

  nb::dict config() const { return write_settings(instance_.config); }
  int64_t vocab_size() const { return instance_.worker->vocab_size(); }
  bool has_tokenizer() const { return tokenizer_.has_value(); }

  nb::list encode(nb::handle text, bool add_special_tokens, bool parse_special_tokens) const;
  std::string decode(nb::handle token_ids, bool skip_special_tokens) const;
  nb::list generate(nb::handle prompts, nb::handle params);
  LogitsArray logits(nb::handle token_ids);
  nb::object report(const std::string& topic);

 private:
  const text::Tokenizer& tokenizer() const;
  std::vector<int32_t> prompt_ids(nb::handle prompt) const;
  engine::Request read_request(nb::handle prompt, nb::handle params) const;
  std::vector<std::vector<int32_t>> bad_words(nb::handle words) const;
  void run_logits(engine::Request request, std::vector<float>& values);

  platform::Instance instance_;
  std::optional<text::Tokenizer> tokenizer_;
  std::string no_tokenizer_ = "the model has no tokenizer.json: give token ids instead of text";
  std::vector<int32_t> eos_token_ids_;
  std::optional<engine::Engine> engine_;
  std::timed_mutex turn_;
};

PythonEngine::PythonEngine(const nb::dict& settings) {
  platform::EngineConfig config = read_settings(settings);
  if (!settings.contains("serving")) config.serving = true;  // a cache for many requests, as far as memory goes
  const platform::Platform& platform = platforms().get(config.platform);
  const nb::gil_scoped_release no_gil;
  SignalWatch signals;
  instance_ = platform::make_instance(platform, std::move(config), [&](const runner::LoadProgress&) { signals(); });
  try {
    tokenizer_ = text::open_tokenizer(*instance_.checkpoint);
  } catch (const Error& error) {  // ids will do
    no_tokenizer_ = error.what();
  }
  eos_token_ids_ = text::eos_token_ids(*instance_.checkpoint, tokenizer_);
  engine::EngineOptions options;
  options.num_blocks = instance_.num_kv_blocks;
  options.max_token_gap = 0;  // nobody reads along: prompts need not wait for streams
  options.flight_steps = 1;
  options.tokenizer = tokenizer_ ? &*tokenizer_ : nullptr;
  engine_.emplace(*instance_.worker, std::move(options));
}

const text::Tokenizer& PythonEngine::tokenizer() const {
  if (!tokenizer_) throw_error(ErrorCode::kNotFound, "{}", no_tokenizer_);
  return *tokenizer_;
}

nb::list to_list(const std::vector<int32_t>& ids) {
  nb::list list;
  for (const int32_t id : ids) list.append(id);
  return list;
}

nb::list PythonEngine::encode(nb::handle text, bool add_special_tokens, bool parse_special_tokens) const {
  const std::string bytes = read_string(text, "text");
  std::vector<int32_t> ids;
  {
    const nb::gil_scoped_release no_gil;
    ids = tokenizer().encode(bytes, {.add_special = add_special_tokens, .parse_special = parse_special_tokens});
  }
  return to_list(ids);
}

std::string PythonEngine::decode(nb::handle token_ids, bool skip_special_tokens) const {
  const std::vector<int32_t> ids = read_ids(token_ids, "token_ids");
  const nb::gil_scoped_release no_gil;
  return tokenizer().decode(ids, skip_special_tokens);
}

// A text is read as the terminal reads one: special tokens in it are parsed.
std::vector<int32_t> PythonEngine::prompt_ids(nb::handle prompt) const {
  if (!PyUnicode_Check(prompt.ptr())) return read_ids(prompt, "the prompt");
  return tokenizer().encode(read_string(prompt, "the prompt"), {.add_special = true, .parse_special = true});
}

std::vector<std::vector<int32_t>> PythonEngine::bad_words(nb::handle words) const {
  std::vector<std::vector<int32_t>> all;
  for (const std::string& word : read_strings(words, "bad_words")) {
    std::vector<std::vector<int32_t>> spellings = text::word_spellings(tokenizer(), word);
    if (spellings.empty()) throw_error(ErrorCode::kInvalidArgument, "bad_words: '{}' has no tokens", word);
    all.insert(all.end(), spellings.begin(), spellings.end());
  }
  return all;
}

// What read_sampling_params() leaves to the host.
engine::Request PythonEngine::read_request(nb::handle prompt, nb::handle params) const {
  static const Name kN("n"), kStop("stop"), kBadWords("bad_words"), kIncludeStop("include_stop_str_in_output"),
      kSkipSpecial("skip_special_tokens");
  engine::Request request{.prompt_ids = prompt_ids(prompt),
                          .sampling = read_sampling_params(params, BadWords::kMayBeText)};
  request.sampling.eos_token_ids = eos_token_ids_;
  const auto given = [&](const Name& name) {
    nb::object value = find_attribute(params, name);
    return value.is_valid() && value.is_none() ? nb::object() : value;
  };
  if (const nb::object n = given(kN); n.is_valid()) request.n = read_int32(n, kN.text);
  if (const nb::object stop = given(kStop); stop.is_valid()) {
    if (PyUnicode_Check(stop.ptr())) {
      request.stop.push_back(read_string(stop, kStop.text));
    } else {
      request.stop = read_strings(stop, kStop.text);
    }
  }
  if (const nb::object words = given(kBadWords); words.is_valid()) request.sampling.bad_words = bad_words(words);
  if (const nb::object v = given(kIncludeStop); v.is_valid()) {
    request.include_stop_in_output = read_bool(v, kIncludeStop.text);
  }
  if (const nb::object v = given(kSkipSpecial); v.is_valid()) {
    request.skip_special_tokens = read_bool(v, kSkipSpecial.text);
  }
  return request;
}

// (token id, log-prob, rank, [(token id, log-prob), ...])
nb::list to_list(const std::vector<runner::TokenLogprob>& logprobs) {
  nb::list list;
  for (const runner::TokenLogprob& one : logprobs) {
    nb::list top;
    for (const auto& [token, logprob] : one.top) top.append(nb::make_tuple(token, logprob));
    list.append(nb::make_tuple(one.token, one.logprob, one.rank, top));
  }
  return list;
}

nb::dict to_dict(const engine::GenerateResult& result, const runner::SamplingParams& sampling) {
  nb::dict choice;
  choice["text"] = result.text;
  choice["token_ids"] = to_list(result.token_ids);
  choice["logprobs"] = sampling.logprobs ? nb::object(to_list(result.logprobs)) : nb::none();
  choice["finish_reason"] = std::string(engine::to_string(result.finish_reason));
  choice["stop_reason"] = nb::none();
  if (result.stop_token) choice["stop_reason"] = *result.stop_token;
  if (result.stop_string) choice["stop_reason"] = *result.stop_string;
  choice["error"] = result.error.empty() ? nb::object(nb::none()) : nb::cast(result.error);
  return choice;
}

nb::dict to_dict(const engine::Request& request, const std::vector<engine::GenerateResult>& results) {
  nb::dict output;
  output["prompt_token_ids"] = to_list(request.prompt_ids);
  output["prompt_logprobs"] = nb::none();
  if (request.sampling.prompt_logprobs) output["prompt_logprobs"] = to_list(results[0].prompt_logprobs);
  output["num_cached_tokens"] = results[0].num_cached_tokens;
  nb::list choices;
  for (const engine::GenerateResult& result : results) choices.append(to_dict(result, request.sampling));
  output["choices"] = choices;
  return output;
}

nb::list PythonEngine::generate(nb::handle prompts, nb::handle params) {
  const Items all(prompts, "prompts");
  std::optional<Items> each;  // else one for all of them
  if (PyList_Check(params.ptr()) || PyTuple_Check(params.ptr())) each.emplace(params, "params");
  if (each && each->size() != all.size()) {
    throw_error(ErrorCode::kInvalidArgument, "there are {} prompts and {} sampling params", all.size(), each->size());
  }
  std::vector<engine::Request> requests;
  for (int64_t i = 0; i < all.size(); ++i) {
    try {
      requests.push_back(read_request(all[i], each ? (*each)[i] : params));
      engine_->check(requests.back());
    } catch (const Error& error) {
      throw_error(error.code(), "prompts[{}]: {}", i, error.what());
    }
  }
  std::vector<std::vector<engine::GenerateResult>> results;
  {
    const nb::gil_scoped_release no_gil;
    SignalWatch signals;
    const Turn turn(turn_, signals);
    results = engine::generate_all(*engine_, requests, [&] { signals(); });
  }
  nb::list outputs;
  for (size_t i = 0; i < results.size(); ++i) outputs.append(to_dict(requests[i], results[i]));
  return outputs;
}

// Without a prefix hit every row of the prompt is computed, and the tap sees them chunk by chunk.
void PythonEngine::run_logits(engine::Request request, std::vector<float>& values) {
  const nb::gil_scoped_release no_gil;
  SignalWatch signals;
  const Turn turn(turn_, signals);
  runner::Worker& worker = *instance_.worker;
  struct EndTap {
    runner::Worker& worker;
    ~EndTap() { worker.set_layer_tap({}); }
  } end_tap{worker};
  worker.set_layer_tap([&values](const runner::LayerOutput& seen) {
    if (seen.layer == "logits") values.insert(values.end(), seen.values.begin(), seen.values.end());
  });
  const size_t expected = request.prompt_ids.size() * vocab_size();
  const auto results = engine::generate_all(*engine_, {std::move(request)}, [&] { signals(); });
  if (!results[0][0].error.empty()) throw_error(ErrorCode::kUnsupported, "{}", results[0][0].error);
  SPYRE_CHECK(values.size() == expected, "{} logits, not {}", values.size(), expected);
}

LogitsArray PythonEngine::logits(nb::handle token_ids) {
  engine::Request request{.prompt_ids = read_ids(token_ids, "token_ids")};
  request.sampling.max_tokens = 0;
  request.sampling.prompt_logprobs = 0;
  engine_->check(request);
  const auto rows = request.prompt_ids.size(), width = static_cast<size_t>(vocab_size());
  auto values = std::make_unique<std::vector<float>>();
  values->reserve(rows * width);
  run_logits(std::move(request), *values);
  float* data = values->data();
  const nb::capsule owner(values.release(), [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  return LogitsArray(data, {rows, width}, owner);
}

nb::object PythonEngine::report(const std::string& topic) {
  nlohmann::json report;
  {
    const nb::gil_scoped_release no_gil;
    SignalWatch signals;
    const Turn turn(turn_, signals);
    report = instance_.worker->report(topic);
  }
  if (report.is_null()) {
    throw_error(ErrorCode::kInvalidArgument, "inspect: the platform {} has no topic '{}'", instance_.config.platform,
                topic);
  }
  return to_python(report);
}

}  // namespace

void bind_engine(nb::module_& m) {
  nb::class_<PythonEngine>(m, "Engine", nb::is_weak_referenceable())
      .def(nb::init<const nb::dict&>(), nb::arg("settings"))
      .def_prop_ro("config", &PythonEngine::config)
      .def_prop_ro("vocab_size", &PythonEngine::vocab_size)
      .def_prop_ro("has_tokenizer", &PythonEngine::has_tokenizer)
      .def("encode", &PythonEngine::encode, nb::arg("text").none(), nb::arg("add_special_tokens") = true,
           nb::arg("parse_special_tokens") = true)
      .def("decode", &PythonEngine::decode, nb::arg("token_ids").none(), nb::arg("skip_special_tokens") = true)
      .def("generate", &PythonEngine::generate, nb::arg("prompts").none(), nb::arg("params").none())
      .def("logits", &PythonEngine::logits, nb::arg("token_ids").none())
      .def("report", &PythonEngine::report, nb::arg("topic"));
}

}  // namespace spyre::python
