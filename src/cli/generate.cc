// spyre generate: one prompt in, its continuation out.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/generate_json.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "engine/engine.h"
#include "runner/sampler.h"
#include "text/detokenizer.h"

namespace spyre::cli {
namespace {

using nlohmann::json;

struct GenerateOptions {
  ModelOptions model;
  PromptOptions prompt;
  std::string format = "text", stop_token_ids;
  runner::SamplingParams sampling{.temperature = 0, .max_tokens = 128};

  bool json() const { return format == "json"; }
};

// What can be said of the flags before a model is opened.
void check_usage(GenerateOptions& options) {
  if (!options.prompt.given()) throw UsageError("a prompt is needed: --prompt or --prompt-ids");
  if (options.prompt.has_ids) (void)options.prompt.parsed_ids();
  if (!options.stop_token_ids.empty()) {
    for (int64_t id : parse_list(options.stop_token_ids, "--stop-token-ids")) {
      if (id < 0 || id > std::numeric_limits<int32_t>::max()) {
        throw UsageError(fmt::format("--stop-token-ids: {} is no token id: they are 0 or more", id));
      }
      options.sampling.stop_token_ids.push_back(static_cast<int32_t>(id));
    }
  }
  try {
    runner::validate(options.sampling, std::numeric_limits<int32_t>::max());
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

std::vector<int32_t> eos_ids(const formats::Checkpoint& checkpoint, const std::optional<text::Tokenizer>& tokenizer) {
  std::vector<int32_t> ids;
  for (int64_t id : checkpoint.config().eos_token_ids) ids.push_back(static_cast<int32_t>(id));
  if (tokenizer) ids.insert(ids.end(), tokenizer->eos_ids().begin(), tokenizer->eos_ids().end());
  return ids;
}

// Turns tokens into text as they come, and shows it unless the output is JSON. Without a tokenizer the ids themselves
// are shown, the ending one included; the text leaves out the token that ends it.
class Answer {
 public:
  Answer(const GenerateOptions& options, const std::optional<text::Tokenizer>& tokenizer,
         const std::vector<int32_t>& eos)
      : options_(options), eos_(eos) {
    if (tokenizer) detokenizer_.emplace(*tokenizer);
  }

  void push(int32_t token) {
    if (detokenizer_) {
      if (!ends(token)) emit(detokenizer_->push(token));
    } else if (!options_.json()) {
      write_out(fmt::format("{}{}", count_ > 0 ? "," : "", token));
    }
    ++count_;
  }
  void finish() {
    if (detokenizer_) emit(detokenizer_->finish());
    if (!options_.json() && count_ > 0) write_out("\n");
  }
  const std::string& text() const { return text_; }

 private:
  bool ends(int32_t token) const {
    const auto contains = [token](const std::vector<int32_t>& ids) {
      return std::find(ids.begin(), ids.end(), token) != ids.end();
    };
    return (!options_.sampling.ignore_eos && contains(eos_)) || contains(options_.sampling.stop_token_ids);
  }
  void emit(std::string_view piece) {
    text_ += piece;
    if (!options_.json() && !piece.empty()) write_out(piece);
  }

  const GenerateOptions& options_;
  const std::vector<int32_t>& eos_;
  std::optional<text::Detokenizer> detokenizer_;
  std::string text_;
  int64_t count_ = 0;
};

struct Timings {
  double start_to_first_token = 0;
};

void write_json(const GenerateOptions& options, const OpenModel& open, const std::vector<int32_t>& prompt,
                const engine::GenerateResult& result, const std::string& text, const Timings& timings) {
  json head = {{"prompt_token_ids", prompt},
               {"token_ids", result.token_ids},
               {"text", text},
               {"finish_reason", engine::to_string(result.finish_reason)},
               {"timings",
                {{"load_seconds", open.load_seconds},
                 {"compile_seconds", open.instance.warm_up.compile_seconds},
                 {"warm_up_seconds", open.instance.warm_up.execute_seconds},
                 {"start_to_first_token_seconds", timings.start_to_first_token},
                 {"prefill_seconds", result.timings.prefill},
                 {"decode_seconds", result.timings.decode},
                 {"decode_steps", result.timings.decode_steps}}}};
  std::string out = head.dump(-1, ' ', false, json::error_handler_t::replace);
  out.pop_back();  // the closing brace
  if (options.sampling.logprobs) out += R"(,"logprobs":)" + logprobs_json(result.logprobs, false);
  if (options.sampling.prompt_logprobs) {
    out += R"(,"prompt_logprobs":)" + logprobs_json(result.prompt_logprobs, true);
  }
  out += "}\n";
  write_out(out);
}

// A prompt of ids needs no tokenizer: without a usable one the answer is ids too.
std::optional<text::Tokenizer> tokenizer_for(const GenerateOptions& options, const formats::Checkpoint& checkpoint) {
  if (!options.prompt.has_ids) return open_tokenizer(checkpoint);
  try {
    return open_tokenizer(checkpoint);
  } catch (const Error& error) {
    log().info("the answer is shown as ids: {}", error.what());
    return std::nullopt;
  }
}

void run_generate(GenerateOptions& options) {
  check_usage(options);
  OpenModel open = open_model(options.model.config(), !options.json());
  const std::optional<text::Tokenizer> tokenizer = tokenizer_for(options, *open.instance.checkpoint);
  const std::vector<int32_t> prompt = options.prompt.token_ids(tokenizer);
  const engine::GenerateRequest request{.prompt_ids = prompt,
                                        .sampling = options.sampling,
                                        .eos_token_ids = eos_ids(*open.instance.checkpoint, tokenizer)};

  engine::Engine engine(*open.instance.worker, open.instance.num_kv_blocks);
  Answer answer(options, tokenizer, request.eos_token_ids);
  Timings timings;
  const engine::GenerateResult result = engine.generate(
      request,
      [&](int32_t token, const runner::TokenLogprob*) {
        if (timings.start_to_first_token == 0) timings.start_to_first_token = seconds_since_start();
        answer.push(token);
      },
      &interrupted);
  answer.finish();
  if (options.json()) write_json(options, open, prompt, result, answer.text(), timings);
  if (result.finish_reason == engine::FinishReason::kError) throw_error(ErrorCode::kUnsupported, "{}", result.error);
  if (result.finish_reason == engine::FinishReason::kAbort) throw_error(ErrorCode::kCancelled, "interrupted");
}

void add_sampling(CLI::App& command, runner::SamplingParams& sampling) {
  const char* group = "Choosing tokens";
  command.add_option("--max-tokens", sampling.max_tokens, "Tokens to generate at most; 0: only score the prompt")
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  command
      .add_option("--temperature", sampling.temperature,
                  "0: always the most probable token; 1: as the model says; above: more surprise")
      ->capture_default_str()
      ->type_name("T")
      ->group(group);
  command.add_option("--top-k", sampling.top_k, "Draw from the K most probable tokens; 0 or -1: from all")
      ->type_name("K")
      ->group(group);
  command.add_option("--top-p", sampling.top_p, "Draw from the most probable tokens that sum to P, above 0 to 1")
      ->type_name("P")
      ->group(group);
  command.add_option("--min-p", sampling.min_p, "Drop tokens below P times the most probable one, 0 to 1")
      ->type_name("P")
      ->group(group);
  command.add_option("--seed", sampling.seed, "The same seed draws the same tokens")->type_name("N")->group(group);
  command.add_flag("--ignore-eos", sampling.ignore_eos, "Go on after the end of the text")->group(group);
}

}  // namespace

void add_generate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "Continue a prompt");
  auto options = std::make_shared<GenerateOptions>();
  options->prompt.add_to(*command, "Prompt (one of)");
  add_sampling(*command, options->sampling);
  command->add_option("--stop-token-ids", options->stop_token_ids, "Also end at these tokens: 5,17")
      ->type_name("IDS")
      ->group("Choosing tokens");
  const char* group = "Output";
  command
      ->add_option("--format", options->format,
                   "text: the answer as it comes; json: one object with prompt_token_ids, token_ids, text, "
                   "finish_reason (stop, length, abort, error), timings in seconds")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}))
      ->group(group);
  command
      ->add_option("--logprobs", options->sampling.logprobs,
                   "json: log-probabilities with the K most probable tokens of each generated one; -1: all tokens")
      ->type_name("K")
      ->group(group);
  command
      ->add_option("--prompt-logprobs", options->sampling.prompt_logprobs,
                   "json: the same for the prompt's tokens; the first has none")
      ->type_name("K")
      ->group(group);
  options->model.add_to(*command);
  command->footer(
      "Examples:\n"
      "  spyre generate MODEL --prompt 'The capital of France is' --max-tokens 16\n"
      "  spyre generate MODEL --prompt 'Once upon a time' --temperature 0.8 --top-p 0.95 --seed 1\n"
      "  spyre generate MODEL --prompt-ids 5,17,3 --logprobs 5 --format json\n"
      "Ctrl-C ends the answer after the current token.");
  command->final_callback([options] { run_generate(*options); });
}

}  // namespace spyre::cli
