#include "engine/flight_file.h"

#include <algorithm>
#include <fstream>
#include <system_error>
#include <type_traits>
#include <utility>

#include "base/build_id.h"
#include "base/error.h"
#include "base/file.h"
#include "engine/flight_value.h"
#include "formats/bytes.h"

namespace spyre::engine {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "spyre flight recording 1";
constexpr size_t kMostBytes = size_t{1} << 30;

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};

// Fields of a structure by name, written when they differ from a fresh one's, read when they are there.
class Writer {
 public:
  template <typename T>
  void field(const char* name, const T& value, const T& initial) {
    if (value == initial) return;
    if constexpr (IsOptional<T>::value) {
      out[name] = *value;  // initially unset, so it is set
    } else {
      out[name] = value;
    }
  }
  json out = json::object();
};

class Reader {
 public:
  explicit Reader(const FlightValue& in) : in_(in) {}
  template <typename T>
  void field(const char* name, T& value, const T&) {
    const std::optional<FlightValue> found = in_.find(name);
    if (!found) return;
    if constexpr (IsOptional<T>::value) {
      value = found->as<typename T::value_type>();
    } else {
      value = found->as<T>();
    }
  }

 private:
  const FlightValue& in_;
};

template <typename Visitor, typename Params>
void visit_sampling(Visitor& v, Params& p) {
  const runner::SamplingParams d;
  v.field("temperature", p.temperature, d.temperature);
  v.field("top_p", p.top_p, d.top_p);
  v.field("top_k", p.top_k, d.top_k);
  v.field("min_p", p.min_p, d.min_p);
  v.field("seed", p.seed, d.seed);
  v.field("max_tokens", p.max_tokens, d.max_tokens);
  v.field("ignore_eos", p.ignore_eos, d.ignore_eos);
  v.field("logprobs", p.logprobs, d.logprobs);
  v.field("prompt_logprobs", p.prompt_logprobs, d.prompt_logprobs);
  v.field("stop_token_ids", p.stop_token_ids, d.stop_token_ids);
  v.field("presence_penalty", p.presence_penalty, d.presence_penalty);
  v.field("frequency_penalty", p.frequency_penalty, d.frequency_penalty);
  v.field("repetition_penalty", p.repetition_penalty, d.repetition_penalty);
  v.field("logit_bias", p.logit_bias, d.logit_bias);
  v.field("min_tokens", p.min_tokens, d.min_tokens);
  v.field("eos_token_ids", p.eos_token_ids, d.eos_token_ids);
  v.field("allowed_token_ids", p.allowed_token_ids, d.allowed_token_ids);
  v.field("bad_words", p.bad_words, d.bad_words);
  v.field("choice", p.choice, d.choice);
}

json sampling_json(const runner::SamplingParams& params) {
  Writer writer;
  visit_sampling(writer, params);
  return writer.out;
}

runner::SamplingParams sampling_from(const FlightValue& in) {
  runner::SamplingParams params;
  Reader reader(in);
  visit_sampling(reader, params);
  return params;
}

json step_json(const RecordedStep& recorded) {
  const runner::Step& step = recorded.step;
  json fresh = json::array(), cached = json::array(), outputs = json::array();
  for (const runner::NewRequest& r : step.new_requests) {
    fresh.push_back({{"id", r.id},
                     {"prompt", r.prompt_token_ids},
                     {"blocks", r.block_ids.at(0)},
                     {"computed", r.num_computed_tokens},
                     {"sampling", sampling_json(r.sampling)}});
    if (r.prefill_token_ids) fresh.back()["tokens"] = *r.prefill_token_ids;
  }
  for (const runner::CachedRequest& r : step.cached_requests) {
    cached.push_back({{"id", r.id}, {"computed", r.num_computed_tokens}, {"outputs", r.num_output_tokens}});
    if (r.resumed) cached.back()["resumed"] = true;
    if (r.new_block_ids) cached.back()["blocks"] = r.new_block_ids->at(0);
  }
  for (const RecordedOutput& o : recorded.outputs) {
    outputs.push_back({{"tokens", o.tokens}});
    if (!o.error.empty()) outputs.back()["error"] = o.error;
  }
  json out = {{"number", recorded.number}, {"new", fresh},
              {"cached", cached},          {"scheduled", step.num_scheduled_tokens},
              {"finished", step.finished}, {"preempted", step.preempted},
              {"end", recorded.end}};
  if (recorded.end == RecordedStep::End::kDone) out.update({{"outputs", outputs}, {"seconds", recorded.seconds}});
  if (recorded.end == RecordedStep::End::kFailed) out["fault"] = recorded.fault;
  return out;
}

using Tokens = std::vector<int32_t>;  // or numbers of blocks

runner::NewRequest new_request_from(const FlightValue& in) {
  runner::NewRequest request{.id = in.at("id").as<std::string>(),
                             .prompt_token_ids = in.at("prompt").as<Tokens>(),
                             .block_ids = {in.at("blocks").as<Tokens>()},
                             .num_computed_tokens = in.at("computed").as<int64_t>(),
                             .sampling = sampling_from(in.at("sampling"))};
  if (const auto tokens = in.find("tokens")) request.prefill_token_ids = tokens->as<Tokens>();
  return request;
}

runner::CachedRequest cached_request_from(const FlightValue& in) {
  runner::CachedRequest request{.id = in.at("id").as<std::string>(),
                                .num_computed_tokens = in.at("computed").as<int64_t>(),
                                .num_output_tokens = in.at("outputs").as<int64_t>()};
  if (const auto resumed = in.find("resumed")) request.resumed = resumed->as<bool>();
  if (const auto blocks = in.find("blocks")) request.new_block_ids = runner::BlockIds{blocks->as<Tokens>()};
  return request;
}

RecordedOutput output_from(const FlightValue& in) {
  RecordedOutput output{.tokens = in.at("tokens").as<Tokens>()};
  if (const auto error = in.find("error")) output.error = error->as<std::string>();
  return output;
}

RecordedStep::End end_from(const FlightValue& in) {
  const auto end = in.as<uint8_t>();
  constexpr auto kLast = static_cast<uint8_t>(RecordedStep::End::kFailed);
  if (end > kLast) in.wrong(fmt::format("0 to {}", kLast));
  return static_cast<RecordedStep::End>(end);
}

RecordedStep step_from(const FlightValue& in) {
  RecordedStep recorded;
  runner::Step& step = recorded.step;
  recorded.number = in.at("number").as<uint64_t>();
  for (const FlightValue& r : in.at("new").entries()) step.new_requests.push_back(new_request_from(r));
  for (const FlightValue& r : in.at("cached").entries()) step.cached_requests.push_back(cached_request_from(r));
  step.num_scheduled_tokens = in.at("scheduled").as<std::vector<std::pair<runner::RequestId, int64_t>>>();
  step.finished = in.at("finished").as<std::vector<runner::RequestId>>();
  step.preempted = in.at("preempted").as<std::vector<runner::RequestId>>();
  recorded.end = end_from(in.at("end"));
  if (const auto outputs = in.find("outputs")) {
    for (const FlightValue& o : outputs->entries()) recorded.outputs.push_back(output_from(o));
  }
  if (const auto fault = in.find("fault")) recorded.fault = fault->as<std::string>();
  if (const auto seconds = in.find("seconds")) recorded.seconds = seconds->as<double>();
  if (recorded.end == RecordedStep::End::kDone && recorded.outputs.size() != step.num_scheduled_tokens.size()) {
    throw_error(ErrorCode::kCorruptData, "step {} has {} outputs for {} requests", recorded.number,
                recorded.outputs.size(), step.num_scheduled_tokens.size());
  }
  return recorded;
}

template <typename Visitor, typename Config>
void visit_config(Visitor& v, Config& c) {
  const platform::EngineConfig d;
  v.field("platform", c.platform, std::string());
  v.field("max_model_len", c.max_model_len, d.max_model_len);
  v.field("block_size", c.block_size, d.block_size);
  v.field("max_num_seqs", c.max_num_seqs, d.max_num_seqs);
  v.field("max_num_batched_tokens", c.max_num_batched_tokens, d.max_num_batched_tokens);
  v.field("token_buckets", c.token_buckets, d.token_buckets);
  v.field("enforce_eager", c.enforce_eager, d.enforce_eager);
  v.field("order", c.order, std::string());
  v.field("threads", c.threads, d.threads);
  v.field("checked", c.checked, d.checked);
  v.field("numerics", c.numerics, d.numerics);
}

// A recording has 8 levels. The bound keeps copies of a tree, which recurse, from running out of stack.
constexpr int kMostDepth = 32;

json parse(const std::string& text) {
  const auto guard = [](int depth, json::parse_event_t, json&) {
    if (depth > kMostDepth) throw_error(ErrorCode::kCorruptData, "it is nested deeper than {}", kMostDepth);
    return true;
  };
  try {
    return json::parse(text, guard);
  } catch (const json::exception& error) {
    throw_error(ErrorCode::kCorruptData, "{}", formats::printable(error.what(), 200));
  }
}

// |read| says what is wrong with a recording; this says that it is none.
template <typename F>
auto checked(F&& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw_error(ErrorCode::kCorruptData, "this is no recording: {}", error.what());
  }
}

}  // namespace

json origin_of(const platform::EngineConfig& config, int64_t num_blocks) {
  Writer writer;
  visit_config(writer, config);
  std::error_code ignored;
  const auto model = std::filesystem::absolute(config.model, ignored);
  writer.out["model"] = (ignored ? config.model : model).string();
  writer.out["num_kv_blocks"] = num_blocks;
  if (config.dtype) writer.out["dtype"] = to_string(*config.dtype);
  if (config.preset == platform::Preset::kOriginal) writer.out["preset"] = "original";
  writer.out["build"] = build_id();
  return writer.out;
}

platform::EngineConfig config_of(const json& origin) {
  return checked([&] {
    platform::EngineConfig config;
    const FlightValue in(origin, "origin");
    Reader reader(in);
    visit_config(reader, config);
    config.model = in.at("model").as<std::string>();
    config.num_kv_blocks = in.at("num_kv_blocks").as<int64_t>();
    if (const auto dtype = in.find("dtype")) config.dtype = parse_dtype(dtype->as<std::string>());
    if (const auto preset = in.find("preset"); preset && preset->as<std::string>() == "original")
      config.preset = platform::Preset::kOriginal;
    return config;
  });
}

json to_json(const Recording& recording) {
  json requests = json::array(), steps = json::array();
  for (const auto& [id, r] : recording.requests) {
    requests.push_back({{"id", id},
                        {"prompt", r.prompt},
                        {"tokens", r.tokens},
                        {"blocks", r.blocks},
                        {"computed", r.computed},
                        {"sampling", sampling_json(r.sampling)}});
  }
  for (const auto& step : recording.steps) steps.push_back(step_json(*step));
  return {{"format", kFormat}, {"origin", recording.origin}, {"requests", requests}, {"steps", steps}};
}

Recording recording_from(const json& in) {
  return checked([&] {
    const FlightValue root(in);
    const auto format = root.find("format");
    if (!format || format->as<std::string>() != kFormat)
      throw_error(ErrorCode::kCorruptData, "its format is not '{}'", kFormat);
    const FlightValue origin = root.at("origin");
    Recording recording{.origin = in.at("origin")};
    if (recording.origin.is_object() && origin.find("build")) (void)origin.at("build").as<std::string>();
    for (const FlightValue& r : root.at("requests").entries()) {
      recording.requests[r.at("id").as<std::string>()] = {.prompt = r.at("prompt").as<Tokens>(),
                                                          .tokens = r.at("tokens").as<Tokens>(),
                                                          .blocks = r.at("blocks").as<Tokens>(),
                                                          .computed = r.at("computed").as<int64_t>(),
                                                          .sampling = sampling_from(r.at("sampling"))};
    }
    for (const FlightValue& step : root.at("steps").entries())
      recording.steps.push_back(std::make_shared<const RecordedStep>(step_from(step)));
    return recording;
  });
}

void write_recording(const Recording& recording, const std::filesystem::path& path) {
  const std::string text = to_json(recording).dump(-1, ' ', false, json::error_handler_t::replace);
  std::filesystem::path beside = path;
  beside += ".part";
  std::ofstream out(beside, std::ios::binary | std::ios::trunc);
  out << text << '\n';
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(beside, path, error);
  if (!out || error) throw_error(ErrorCode::kUnavailable, "'{}': the recording cannot be written", path.string());
}

Recording parse_recording(const std::string& text) {
  return recording_from(checked([&] { return parse(text); }));
}

Recording read_recording(const std::filesystem::path& path) {
  const std::string text = read_file(path, kMostBytes);
  try {
    return parse_recording(text);
  } catch (const Error& error) {
    throw_error(error.code(), "'{}': {}", path.string(), error.what());
  }
}

}  // namespace spyre::engine
