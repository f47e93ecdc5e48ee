// spyre generate: one prompt in, its continuation out.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "engine/engine.h"
#include "text/detokenizer.h"

namespace spyre::cli {
namespace {

using nlohmann::json;

struct GenerateOptions {
  ModelOptions model;
  std::string prompt, prompt_ids, format = "text";
  int64_t max_tokens = 128;
  runner::SamplingParams sampling;
  std::optional<int32_t> logprobs, prompt_logprobs;
  std::optional<uint64_t> seed;
};

std::vector<int32_t> token_ids(const GenerateOptions& options, const std::optional<text::Tokenizer>& tokenizer) {
  if (!options.prompt_ids.empty()) {
    std::vector<int32_t> ids;
    for (int64_t id : parse_list(options.prompt_ids, "--prompt-ids")) {
      if (id < 0 || id > std::numeric_limits<int32_t>::max()) {
        throw_error(ErrorCode::kInvalidArgument, "--prompt-ids: {} is no token id", id);
      }
      ids.push_back(static_cast<int32_t>(id));
    }
    return ids;
  }
  if (!tokenizer) {
    throw_error(ErrorCode::kNotFound, "the model has no tokenizer.json: give --prompt-ids instead of --prompt");
  }
  return tokenizer->encode(options.prompt, {.add_special = true, .parse_special = true});
}

json logprob_json(const runner::TokenLogprob& l) {
  json top = json::array();
  for (const auto& [id, value] : l.top) top.push_back({id, value});
  return {{"id", l.token}, {"logprob", l.logprob}, {"top", std::move(top)}};
}

json result_json(const std::vector<int32_t>& prompt, const engine::GenerateResult& result, const std::string& text,
                 const GenerateOptions& options, const OpenModel& open) {
  json out = {{"prompt_token_ids", prompt},
              {"token_ids", result.token_ids},
              {"text", text},
              {"finish_reason", engine::to_string(result.finish_reason)},
              {"timings",
               {{"load_seconds", open.load_seconds},
                {"compile_seconds", open.instance.warm_up.compile_seconds},
                {"warm_up_seconds", open.instance.warm_up.execute_seconds},
                {"prefill_seconds", result.timings.prefill},
                {"decode_seconds", result.timings.decode},
                {"decode_steps", result.timings.decode_steps}}}};
  if (options.logprobs) {
    out["logprobs"] = json::array();
    for (const runner::TokenLogprob& l : result.logprobs) out["logprobs"].push_back(logprob_json(l));
  }
  if (options.prompt_logprobs) {
    out["prompt_logprobs"] = json::array({nullptr});
    for (const runner::TokenLogprob& l : result.prompt_logprobs) out["prompt_logprobs"].push_back(logprob_json(l));
  }
  return out;
}

void run_generate(const GenerateOptions& options) {
  if (options.format != "text" && options.format != "json") {
    throw_error(ErrorCode::kInvalidArgument, "--format '{}' is not known; known: text, json", options.format);
  }
  const bool json_output = options.format == "json";
  OpenModel open = open_model(options.model.config(), !json_output);
  const std::optional<text::Tokenizer> tokenizer = open_tokenizer(*open.instance.checkpoint);
  const std::vector<int32_t> prompt = token_ids(options, tokenizer);

  engine::GenerateRequest request{.prompt_ids = prompt, .sampling = options.sampling};
  request.sampling.max_tokens = options.max_tokens;
  request.sampling.logprobs = options.logprobs;
  request.sampling.prompt_logprobs = options.prompt_logprobs;
  request.sampling.seed = options.seed;
  for (int64_t id : open.instance.checkpoint->config().eos_token_ids) {
    request.eos_token_ids.push_back(static_cast<int32_t>(id));
  }
  if (tokenizer) {
    for (int32_t id : tokenizer->eos_ids()) request.eos_token_ids.push_back(id);
  }

  engine::Engine engine(*open.instance.worker, open.instance.num_kv_blocks);
  std::optional<text::Detokenizer> detokenizer;
  if (tokenizer) detokenizer.emplace(*tokenizer);
  std::string text;
  auto emit = [&](std::string_view piece) {
    text += piece;
    if (json_output) return;
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fflush(stdout);
  };
  const engine::GenerateResult result = engine.generate(
      request,
      [&](int32_t token, const runner::TokenLogprob*) {
        if (detokenizer) {
          emit(detokenizer->push(token));
        } else if (!json_output) {
          emit(fmt::format("{}{}", text.empty() ? "" : ",", token));
        }
      },
      &interrupted);
  if (detokenizer) emit(detokenizer->finish());
  if (json_output) {
    if (!detokenizer) text.clear();
    std::puts(
        result_json(prompt, result, text, options, open).dump(-1, ' ', false, json::error_handler_t::replace).c_str());
  } else {
    std::putchar('\n');
  }
  if (result.finish_reason == engine::FinishReason::kError) throw_error(ErrorCode::kInternal, "{}", result.error);
}

}  // namespace

void add_generate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "Continue a prompt");
  auto options = std::make_shared<GenerateOptions>();
  options->sampling.temperature = 0;
  options->model.add_to(*command);
  auto* text = command->add_option("--prompt", options->prompt, "Text; special tokens in it are parsed");
  auto* ids = command->add_option("--prompt-ids", options->prompt_ids, "Token ids: 5,17,3");
  text->excludes(ids);
  command->add_option("--max-tokens", options->max_tokens, "Tokens to generate at most")->capture_default_str();
  command->add_option("--temperature", options->sampling.temperature, "0: always the most probable token")
      ->capture_default_str();
  command->add_option("--top-k", options->sampling.top_k, "Draw from the K most probable; 0 or -1: all");
  command->add_option("--top-p", options->sampling.top_p, "Draw from the most probable that sum to P");
  command->add_option("--min-p", options->sampling.min_p, "Drop tokens below P times the most probable");
  command->add_option("--seed", options->seed, "The same seed draws the same tokens");
  command->add_option("--stop-token-ids", options->sampling.stop_token_ids, "Also end at these tokens")->delimiter(',');
  command->add_flag("--ignore-eos", options->sampling.ignore_eos, "Go on after the end of the text");
  command->add_option("--logprobs", options->logprobs,
                      "Log-probabilities: the top K per token; -1: the whole vocabulary");
  command->add_option("--prompt-logprobs", options->prompt_logprobs, "The same for the prompt's tokens");
  command->add_option("--format", options->format, "text or json")->capture_default_str();
  command->final_callback([command, options] {
    if (command->count("--prompt") + command->count("--prompt-ids") == 0) {
      throw CLI::RequiredError("--prompt or --prompt-ids");
    }
    run_generate(*options);
  });
}

}  // namespace spyre::cli
