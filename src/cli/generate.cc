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
#include "cli/sampling_options.h"
#include "cli/trace_file.h"
#include "engine/generate.h"
#include "runner/sampler.h"

namespace spyre::cli {
namespace {

using nlohmann::json;

struct GenerateOptions {
  ModelOptions model;
  PromptOptions prompt;
  std::string format = "text", stop_token_ids, trace;
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

// Shows the answer as it comes, unless the output is JSON. Without a tokenizer the ids themselves are shown, the ending
// one included.
class Answer {
 public:
  Answer(const GenerateOptions& options, bool has_text) : options_(options), has_text_(has_text) {}

  void show(const engine::OutputDelta& delta) {
    if (options_.json()) return;
    if (has_text_ && !delta.text.empty()) write_out(delta.text);
    for (const int32_t token : delta.token_ids) {
      if (!has_text_) write_out(fmt::format("{}{}", shown_ ? "," : "", token));
      shown_ = true;
    }
  }
  void finish() {
    if (shown_ && !options_.json()) write_out("\n");
  }

 private:
  const GenerateOptions& options_;
  const bool has_text_;
  bool shown_ = false;
};

struct Timings {
  double start_to_first_token = 0;
};

void write_json(const GenerateOptions& options, const OpenModel& open, const std::vector<int32_t>& prompt,
                const engine::GenerateResult& result, const Timings& timings) {
  json head = {{"prompt_token_ids", prompt},
               {"token_ids", result.token_ids},
               {"text", result.text},
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
std::optional<text::Tokenizer> tokenizer_for(const GenerateOptions& options, OpenModel& open) {
  if (!options.prompt.has_ids) return open.tokenizer.get();
  try {
    return open.tokenizer.get();
  } catch (const Error& error) {
    log().info("the answer is shown as ids: {}", error.what());
    return std::nullopt;
  }
}

void run_generate(GenerateOptions& options) {
  check_usage(options);
  OpenModel open = open_model(options.model.config(), !options.json(), Texts::kTokenizer);
  const std::optional<text::Tokenizer> tokenizer = tokenizer_for(options, open);
  const std::vector<int32_t> prompt = options.prompt.token_ids(tokenizer);
  engine::Request request{.prompt_ids = prompt, .sampling = options.sampling};
  request.sampling.eos_token_ids = text::eos_token_ids(*open.instance.checkpoint, tokenizer);

  TraceFile trace(options.trace, *open.instance.worker);
  engine::Engine engine(*open.instance.worker,
                        {.num_blocks = open.instance.num_kv_blocks, .tokenizer = tokenizer ? &*tokenizer : nullptr});
  Answer answer(options, tokenizer.has_value());
  Timings timings;
  const engine::GenerateResult result = engine::generate(
      engine, std::move(request),
      [&](const engine::OutputDelta& delta) {
        const bool first = timings.start_to_first_token == 0 && !delta.token_ids.empty();
        if (first) timings.start_to_first_token = seconds_since_start();
        answer.show(delta);
      },
      &interrupted);
  answer.finish();
  trace.finish();
  if (options.json()) write_json(options, open, prompt, result, timings);
  if (result.finish_reason == engine::FinishReason::kError) throw_error(ErrorCode::kUnsupported, "{}", result.error);
  if (result.finish_reason == engine::FinishReason::kAbort) throw_error(ErrorCode::kCancelled, "interrupted");
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
  add_trace_flag(*command, options->trace);
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
