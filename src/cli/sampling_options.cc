#include "cli/sampling_options.h"

#include <CLI/CLI.hpp>
#include <charconv>

#include "cli/command.h"

namespace spyre::cli {
namespace {

std::vector<std::pair<int32_t, float>> parse_logit_bias(const std::string& text) {
  std::vector<std::pair<int32_t, float>> biases;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view entry = std::string_view(text).substr(begin, end - begin);
    const size_t colon = std::min(entry.find(':'), entry.size());
    int32_t token = -1;
    float bias = 0;
    const auto id = std::from_chars(entry.data(), entry.data() + colon, token);
    const auto value =
        std::from_chars(entry.data() + std::min(colon + 1, entry.size()), entry.data() + entry.size(), bias);
    if (colon == 0 || colon == entry.size() || id.ec != std::errc() || id.ptr != entry.data() + colon ||
        value.ec != std::errc() || value.ptr != entry.data() + entry.size()) {
      throw UsageError(fmt::format("--logit-bias: '{}' is not ID:BIAS", entry));
    }
    biases.emplace_back(token, bias);
    begin = end + 1;
  }
  return biases;
}

}  // namespace

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
  command
      .add_option("--presence-penalty", sampling.presence_penalty,
                  "Subtract P from the logit of every token generated before, -2 to 2")
      ->type_name("P")
      ->group(group);
  command
      .add_option("--frequency-penalty", sampling.frequency_penalty,
                  "Subtract P for each time the token was generated before, -2 to 2")
      ->type_name("P")
      ->group(group);
  command
      .add_option("--repetition-penalty", sampling.repetition_penalty,
                  "Above 1: make tokens of prompt and answer less likely; above 0")
      ->type_name("P")
      ->group(group);
  command.add_option("--min-tokens", sampling.min_tokens, "Draw no ending token before N tokens")
      ->type_name("N")
      ->group(group);
  command
      .add_option_function<std::string>(
          "--logit-bias", [&sampling](const std::string& text) { sampling.logit_bias = parse_logit_bias(text); },
          "Add to the logits of tokens: 5:-100,17:2.5")
      ->type_name("ID:B,..")
      ->group(group);
  command.add_option("--seed", sampling.seed, "The same seed draws the same tokens")->type_name("N")->group(group);
  command.add_flag("--ignore-eos", sampling.ignore_eos, "Go on after the end of the text")->group(group);
}

}  // namespace spyre::cli
