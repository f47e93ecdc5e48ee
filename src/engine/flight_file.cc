#include "engine/flight_file.h"

#include <algorithm>
#include <fstream>
#include <system_error>
#include <type_traits>
#include <utility>

#include "base/build_id.h"
#include "base/error.h"
#include "base/file.h"

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
  explicit Reader(const json& in) : in_(in) {}
  template <typename T>
  void field(const char* name, T& value, const T&) {
    const auto found = in_.find(name);
    if (found == in_.end()) return;
    if constexpr (IsOptional<T>::value) {
      value = found->get<typename T::value_type>();
    } else {
      value = found->get<T>();
    }
  }

 private:
  const json& in_;
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

runner::SamplingParams sampling_from(const json& in) {
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

RecordedStep step_from(const json& in) {
  RecordedStep recorded;
  runner::Step& step = recorded.step;
  in.at("number").get_to(recorded.number);
  for (const json& r : in.at("new")) {
    runner::NewRequest request{.id = r.at("id"),
                               .prompt_token_ids = r.at("prompt"),
                               .block_ids = {r.at("blocks")},
                               .num_computed_tokens = r.at("computed"),
                               .sampling = sampling_from(r.at("sampling"))};
    if (r.contains("tokens")) request.prefill_token_ids = r.at("tokens").get<std::vector<int32_t>>();
    step.new_requests.push_back(std::move(request));
  }
  for (const json& r : in.at("cached")) {
    runner::CachedRequest request{.id = r.at("id"),
                                  .resumed = r.value("resumed", false),
                                  .num_computed_tokens = r.at("computed"),
                                  .num_output_tokens = r.at("outputs")};
    if (r.contains("blocks")) request.new_block_ids = runner::BlockIds{r.at("blocks").get<std::vector<int32_t>>()};
    step.cached_requests.push_back(std::move(request));
  }
  in.at("scheduled").get_to(step.num_scheduled_tokens);
  in.at("finished").get_to(step.finished);
  in.at("preempted").get_to(step.preempted);
  recorded.end = static_cast<RecordedStep::End>(std::min(in.at("end").get<uint8_t>(), uint8_t{2}));
  if (in.contains("outputs")) {
    for (const json& o : in.at("outputs")) recorded.outputs.push_back({o.at("tokens"), o.value("error", "")});
  }
  recorded.fault = in.value("fault", "");
  recorded.seconds = in.value("seconds", 0.0);
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
}

// |read| turns a mistake in the file into one line.
template <typename F>
auto checked(F&& read) {
  try {
    return read();
  } catch (const json::exception& error) {
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
    Reader reader(origin);
    visit_config(reader, config);
    config.model = origin.at("model").get<std::string>();
    config.num_kv_blocks = origin.at("num_kv_blocks").get<int64_t>();
    if (origin.contains("dtype")) config.dtype = parse_dtype(origin.at("dtype").get<std::string>());
    if (origin.value("preset", "") == "original") config.preset = platform::Preset::kOriginal;
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
    if (!in.is_object() || in.value("format", "") != kFormat) {
      throw_error(ErrorCode::kCorruptData, "this is no recording: its format is not '{}'", kFormat);
    }
    Recording recording{.origin = in.at("origin")};
    const json& origin = recording.origin;
    if (origin.is_object() && !origin.value("build", json("")).is_string())
      throw_error(ErrorCode::kCorruptData, "this is no recording: the build of its origin is no text");
    for (const json& r : in.at("requests")) {
      recording.requests[r.at("id").get<std::string>()] = {.prompt = r.at("prompt"),
                                                           .tokens = r.at("tokens"),
                                                           .blocks = r.at("blocks"),
                                                           .computed = r.at("computed"),
                                                           .sampling = sampling_from(r.at("sampling"))};
    }
    for (const json& step : in.at("steps")) {
      recording.steps.push_back(std::make_shared<const RecordedStep>(step_from(step)));
    }
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

Recording read_recording(const std::filesystem::path& path) {
  const std::string text = read_file(path, kMostBytes);
  try {
    return recording_from(checked([&] { return json::parse(text); }));
  } catch (const Error& error) {
    throw_error(error.code(), "'{}': {}", path.string(), error.what());
  }
}

}  // namespace spyre::engine
