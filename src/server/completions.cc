#include "server/completions.h"

#include "server/api_error.h"

namespace spyre::server {
namespace {

struct Prompt {
  std::vector<int32_t> ids;
  std::string text;  // what echo shows; made from the ids where only these were given
};

class CompletionFormat final : public AnswerFormat {
 public:
  CompletionFormat(const ServedModel& model, const AnswerOptions& options, bool echo, std::optional<int32_t> logprobs,
                   bool prompt_logprobs, std::vector<Prompt> prompts)
      : text_(model.tokenizer, options.tokens_as_ids),
        options_(options),
        echo_(echo),
        logprobs_(logprobs),
        prompt_logprobs_(prompt_logprobs),
        prompts_(std::move(prompts)) {}

  std::string_view id_prefix() const override { return "cmpl-"; }
  std::string_view object() const override { return "text_completion"; }
  std::string_view chunk_object() const override { return "text_completion"; }
  void finish_whole(Json&, std::vector<Choice>&) override {}

  Json whole(Choice& choice) override {
    const Prompt& prompt = prompts_[choice.prompt];
    Json out;
    out["index"] = choice.index;
    out["text"] = echo_ ? prompt.text + choice.text : choice.text;
    out["logprobs"] = logprobs_ ? logprobs(choice, choice.prompt_logprobs, choice.logprobs, true) : Json(nullptr);
    add_end(out, choice);
    out["prompt_logprobs"] = prompt_logprobs_ ? prompt_logprobs_json(text_, choice.prompt_logprobs) : Json(nullptr);
    if (options_.return_token_ids) {
      out["token_ids"] = choice.token_ids;
      out["prompt_token_ids"] = prompt.ids;
    }
    return out;
  }

  std::vector<Json> chunks(Choice& choice, const engine::OutputDelta& delta) override {
    const bool first = !choice.begun;
    const bool shows = !delta.text.empty() || delta.finish_reason || (first && echo_) ||
                       (!delta.token_ids.empty() && (logprobs_ || options_.return_token_ids));
    if (!shows) return {};
    choice.begun = true;
    const Prompt& prompt = prompts_[choice.prompt];
    Json out;
    out["index"] = choice.index;
    out["text"] = first && echo_ ? prompt.text + delta.text : delta.text;
    out["logprobs"] = logprobs_ ? logprobs(choice, delta.prompt_logprobs, delta.logprobs, first) : Json(nullptr);
    add_end(out, choice);
    if (options_.return_token_ids) {
      out["token_ids"] = delta.token_ids;
      if (first) out["prompt_token_ids"] = prompt.ids;
    }
    std::vector<Json> entries;
    entries.push_back(std::move(out));
    return entries;
  }

 private:
  // Prompt log-probs come with choice 0 of a prompt; the choices that share it repeat them.
  Json logprobs(Choice& choice, const std::vector<runner::TokenLogprob>& of_prompt,
                const std::vector<runner::TokenLogprob>& of_answer, bool first) {
    CompletionLogprobs out(text_, *logprobs_);
    if (echo_ && first) {
      if (shared_.size() <= choice.prompt) shared_.resize(choice.prompt + 1);
      auto& shared = shared_[choice.prompt];
      if (!of_prompt.empty()) shared = of_prompt;
      out.add_first_prompt_token(prompts_[choice.prompt].ids.front(), choice.text_offset);
      for (const runner::TokenLogprob& token : shared) out.add(token, choice.text_offset);
    }
    for (const runner::TokenLogprob& token : of_answer) out.add(token, choice.text_offset);
    return out.take();
  }
  static void add_end(Json& out, const Choice& choice) {
    out["finish_reason"] = choice.finish_reason ? Json(engine::to_string(*choice.finish_reason)) : Json(nullptr);
    out["stop_reason"] = choice.stop_reason();
  }

  const TokenText text_;
  const AnswerOptions options_;
  const bool echo_;
  const std::optional<int32_t> logprobs_;
  const bool prompt_logprobs_;
  const std::vector<Prompt> prompts_;
  std::vector<std::vector<runner::TokenLogprob>> shared_;  // prompt log-probs by prompt
};

std::vector<int32_t> ids_of(const Json& list) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (const Json& id : list) ids.push_back(static_cast<int32_t>(*whole_number(id)));
  return ids;
}

// Texts are read as Hugging Face's tokenizers do: the text of a special token is that token.
Prompt read_prompt(const Json& value, const Body& body, const ServedModel& model, bool echo) {
  Prompt prompt;
  if (value.is_string()) {
    if (!model.tokenizer) bad_field("prompt", "this model has no tokenizer: give token ids");
    prompt.text = value.get<std::string>();
    try {
      prompt.ids = model.tokenizer->encode(
          prompt.text, {.add_special = body.flag("add_special_tokens", true), .parse_special = true});
    } catch (const Error& error) {
      bad_field("prompt", "{}", error.what());
    }
  } else {
    prompt.ids = ids_of(value);
    if (echo && model.tokenizer) prompt.text = model.tokenizer->decode(prompt.ids);
  }
  return prompt;
}

std::vector<Prompt> read_prompts(const Body& body, const ServedModel& model, bool echo) {
  const Json* given = body.find("prompt");
  if (!given) bad_field("prompt", "is required");
  std::vector<Prompt> prompts;
  if (given->is_string() || (*given)[0].is_number()) {
    prompts.push_back(read_prompt(*given, body, model, echo));
  } else {
    for (const Json& entry : *given) prompts.push_back(read_prompt(entry, body, model, echo));
  }
  return prompts;
}

}  // namespace

GenerationPlan plan_completion(const Json& json, const ServedModel& model) {
  check_fields(json, completion_fields(), model.limits);
  const Body body(json);
  check_model_name(body, model);
  GenerationPlan plan;
  plan.options = read_answer_options(body);
  engine::Request shape = read_sampling(body, model);
  const bool echo = body.flag("echo", false);
  if (body.integer("best_of").value_or(shape.n) != shape.n)
    bad_field("best_of", "only n ({}) is built: choices are not ranked", shape.n);
  const auto logprobs = body.integer("logprobs");
  check_whole_vocabulary("logprobs", logprobs, model.limits);
  std::optional<int32_t> top;
  if (logprobs) top = static_cast<int32_t>(*logprobs);
  shape.sampling.logprobs = top;
  const bool prompt_logprobs = shape.sampling.prompt_logprobs.has_value();
  if (echo && top && !prompt_logprobs) shape.sampling.prompt_logprobs = top;

  std::vector<Prompt> prompts = read_prompts(body, model, echo);
  const int64_t total = static_cast<int64_t>(prompts.size()) * shape.n;
  if (total > model.limits.max_total_choices) {
    bad_field("n", "{} prompts with {} choices each are {}; at most {} are taken", prompts.size(), shape.n, total,
              model.limits.max_total_choices);
  }
  for (Prompt& prompt : prompts) {
    engine::Request request = shape;
    const size_t given = prompt.ids.size();
    fit_context(request, std::move(prompt.ids), body, model.limits, "max_tokens", body.integer("max_tokens"), 16);
    prompt.ids = request.prompt_ids;
    if (prompt.ids.size() < given && echo && model.tokenizer) prompt.text = model.tokenizer->decode(prompt.ids);
    plan.requests.push_back(std::move(request));
  }
  plan.format = std::make_unique<CompletionFormat>(model, plan.options, echo, top, prompt_logprobs, std::move(prompts));
  return plan;
}

}  // namespace spyre::server
