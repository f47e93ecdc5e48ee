#include "server/sampling.h"

#include <algorithm>

#include "runner/sampler.h"
#include "server/api_error.h"
#include "text/model_tokenizer.h"

namespace spyre::server {
namespace {

std::vector<std::vector<int32_t>> bad_word_ids(const Body& body, const ServedModel& model) {
  std::vector<std::vector<int32_t>> out;
  for (const std::string& given : body.strings("bad_words")) {
    if (!model.tokenizer) bad_field("bad_words", "this model has no tokenizer; use logit_bias");
    const auto spellings = text::word_spellings(*model.tokenizer, given);
    if (spellings.empty()) bad_field("bad_words", "'{}' has no tokens", quotable(given, 40));
    out.insert(out.end(), spellings.begin(), spellings.end());
  }
  return out;
}

std::vector<std::pair<int32_t, float>> bias_of(const Body& body) {
  std::vector<std::pair<int32_t, float>> out;
  if (const Json* bias = body.find("logit_bias")) {
    for (const auto& [id, value] : bias->items()) {
      out.emplace_back(static_cast<int32_t>(std::stol(id)),
                       static_cast<float>(std::clamp(value.get<double>(), -100.0, 100.0)));
    }
  }
  std::sort(out.begin(), out.end());
  const auto twice =
      std::adjacent_find(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice != out.end()) bad_field("logit_bias", "token id {} occurs twice", twice->first);
  return out;
}

std::vector<int32_t> unique_ids(std::vector<int32_t> ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// With allowed_token_ids that the other fields forbid, every one, nothing could be drawn.
void check_drawable(const runner::SamplingParams& p) {
  if (!p.allowed_token_ids) return;
  std::vector<int32_t> banned;
  for (const auto& word : p.bad_words) {
    if (word.size() == 1) banned.push_back(word.front());
  }
  if (p.min_tokens > 0) {
    banned.insert(banned.end(), p.stop_token_ids.begin(), p.stop_token_ids.end());
    if (!p.ignore_eos) banned.insert(banned.end(), p.eos_token_ids.begin(), p.eos_token_ids.end());
  }
  std::sort(banned.begin(), banned.end());
  const auto is_banned = [&](int32_t id) { return std::binary_search(banned.begin(), banned.end(), id); };
  if (std::all_of(p.allowed_token_ids->begin(), p.allowed_token_ids->end(), is_banned))
    bad_field("allowed_token_ids", "no token could be drawn: min_tokens and bad_words leave none of these");
}

runner::SamplingParams sampling_params(const Body& body, const ServedModel& model) {
  runner::SamplingParams p;
  const formats::GenerationDefaults& defaults = model.defaults;
  p.temperature = body.number("temperature").value_or(defaults.temperature.value_or(p.temperature));
  p.top_p = body.number("top_p").value_or(defaults.top_p.value_or(p.top_p));
  p.top_k = std::min(body.integer("top_k").value_or(defaults.top_k.value_or(p.top_k)), model.limits.vocab_size);
  p.min_p = body.number("min_p").value_or(defaults.min_p.value_or(p.min_p));
  if (const auto seed = body.integer("seed")) p.seed = static_cast<uint64_t>(*seed);
  p.presence_penalty = body.number("presence_penalty").value_or(p.presence_penalty);
  p.frequency_penalty = body.number("frequency_penalty").value_or(p.frequency_penalty);
  p.repetition_penalty =
      body.number("repetition_penalty").value_or(defaults.repetition_penalty.value_or(p.repetition_penalty));
  p.logit_bias = bias_of(body);
  if (body.find("allowed_token_ids")) {
    p.allowed_token_ids = unique_ids(body.ids("allowed_token_ids"));
    if (p.allowed_token_ids->empty()) bad_field("allowed_token_ids", "is empty: no token could be drawn");
  }
  p.bad_words = bad_word_ids(body, model);
  p.min_tokens = body.integer("min_tokens").value_or(0);
  p.ignore_eos = body.flag("ignore_eos", false);
  p.stop_token_ids = unique_ids(body.ids("stop_token_ids"));
  p.eos_token_ids = model.eos_token_ids;
  check_drawable(p);
  return p;
}

}  // namespace

engine::Request read_sampling(const Body& body, const ServedModel& model) {
  engine::Request request;
  request.sampling = sampling_params(body, model);
  request.n = static_cast<int32_t>(body.integer("n").value_or(1));
  request.stop = body.strings("stop");
  if (!request.stop.empty() && !model.tokenizer) bad_field("stop", "this model has no tokenizer; use stop_token_ids");
  request.include_stop_in_output = body.flag("include_stop_str_in_output", false);
  request.skip_special_tokens = body.flag("skip_special_tokens", true);
  request.cache_salt = body.string("cache_salt").value_or("");
  if (body.find("cache_salt") && request.cache_salt.empty()) bad_field("cache_salt", "is empty");
  if (request.cache_salt.size() > 1024)
    bad_field("cache_salt", "has {} bytes; at most 1024 are taken", request.cache_salt.size());
  const auto prompt_logprobs = body.integer("prompt_logprobs");
  check_whole_vocabulary("prompt_logprobs", prompt_logprobs, model.limits);
  if (prompt_logprobs && body.flag("stream", false)) bad_field("prompt_logprobs", "is not there with stream");
  if (prompt_logprobs) request.sampling.prompt_logprobs = static_cast<int32_t>(*prompt_logprobs);
  return request;
}

AnswerOptions read_answer_options(const Body& body) {
  AnswerOptions options;
  options.stream = body.flag("stream", false);
  options.return_token_ids = body.flag("return_token_ids", false);
  options.tokens_as_ids = body.flag("return_tokens_as_token_ids", false);
  options.id_suffix = body.string("request_id").value_or("");
  if (options.id_suffix.size() > 256)
    bad_field("request_id", "has {} bytes; at most 256 are taken", options.id_suffix.size());
  const Json* stream_options = body.find("stream_options");
  if (!stream_options) return options;
  if (!options.stream) bad_field("stream_options", "needs stream true");
  for (const auto& [name, value] : stream_options->items()) {
    if (value.is_null()) continue;
    if (!value.is_boolean())
      bad_field("stream_options", "{} must be true or false, not {}", quotable(name, 40), shown(value));
    if (name == "include_usage") options.include_usage = value.get<bool>();
    if (name == "continuous_usage_stats") options.continuous_usage = value.get<bool>();
  }
  options.continuous_usage = options.continuous_usage && options.include_usage;
  return options;
}

void fit_context(engine::Request& request, std::vector<int32_t> prompt, const Body& body, const RequestLimits& limits,
                 std::string_view asked_field, std::optional<int64_t> asked, int64_t fallback) {
  if (auto keep = body.integer("truncate_prompt_tokens")) {
    if (*keep == 0) bad_field("truncate_prompt_tokens", "must be -1 or at least 1, not 0");
    if (*keep < 0) keep = limits.max_model_len - std::max<int64_t>(asked.value_or(1), 0);
    const auto kept = static_cast<size_t>(std::max<int64_t>(*keep, 1));
    if (kept < prompt.size()) prompt.erase(prompt.begin(), prompt.end() - static_cast<int64_t>(kept));
  }
  const auto length = static_cast<int64_t>(prompt.size());
  const int64_t left = limits.max_model_len - length;
  if (length == 0) throw ApiError(400, "prompt: has no tokens", "prompt");
  if (asked.value_or(1) > left) {
    throw ApiError(
        400,
        fmt::format("the context of this model holds {} tokens; the prompt has {} and {} more were asked for: shorten "
                    "the prompt or lower {}",
                    limits.max_model_len, length, asked ? std::to_string(*asked) : "at least 1", asked_field),
        std::string(asked_field));
  }
  request.sampling.max_tokens = asked.value_or(std::min(fallback, left));
  if (request.sampling.min_tokens > request.sampling.max_tokens) {
    bad_field("min_tokens", "must be at most {} ({}), not {}", asked_field, request.sampling.max_tokens,
              request.sampling.min_tokens);
  }
  request.prompt_ids = std::move(prompt);
  try {
    runner::validate(request.sampling, limits.vocab_size);  // the sampler's own word on it
  } catch (const Error& error) {
    throw to_api_error(error);
  }
}

void check_whole_vocabulary(std::string_view field, std::optional<int64_t> count, const RequestLimits& limits) {
  if (count && *count == -1 && limits.max_logprobs < limits.vocab_size) {
    bad_field(field, "-1 (the whole vocabulary of {}) is above the limit of {}", limits.vocab_size,
              limits.max_logprobs);
  }
}

void check_model_name(const Body& body, const ServedModel& model) {
  const auto name = body.string("model");
  if (!name || std::find(model.names.begin(), model.names.end(), *name) != model.names.end()) return;
  throw ApiError(404, fmt::format("The model `{}` does not exist.", quotable(*name)), "model");
}

}  // namespace spyre::server
