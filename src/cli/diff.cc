// spyre diff: one prompt on two platforms, types or orders, and where the two part.
//
// Both see the same ids. Of every layer the hidden states of all positions of the prompt are compared, then the logits,
// then the greedy continuations. A layer's figures are the largest |difference| over the largest |value| of the
// first (relative), and the root of the squared differences over that of the first's squares (drift).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "engine/generate.h"

namespace spyre::cli {
namespace {

using nlohmann::json;

constexpr int64_t kDefaultPromptTokens = 64;

struct Side {
  std::string name;  // as given
  std::string platform, dtype = "auto", order = "auto", numerics = "ieee";
};

// platform[:dtype[:order]][:dl16]
Side parse_side(const char* flag, const std::string& text) {
  std::vector<std::string> parts{""};
  for (char c : text) {
    if (c == ':') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  Side side{.name = text};
  if (parts.size() > 1 && (parts.back() == "dl16" || parts.back() == "ieee")) {
    side.numerics = parts.back();
    parts.pop_back();
  }
  if (parts.size() > 3 || std::any_of(parts.begin(), parts.end(), [](const auto& part) { return part.empty(); })) {
    throw UsageError(
        fmt::format("{}: '{}' is not platform[:dtype[:order]][:dl16], as in spyre:bfloat16:pair", flag, text));
  }
  side.platform = parts[0];
  if (parts.size() > 1) side.dtype = parts[1];
  if (parts.size() > 2) side.order = parts[2];
  (void)parse_dtype_flag(flag, side.dtype);
  if (side.order != "auto" && side.order != "pair" && side.order != "tile") {
    throw UsageError(fmt::format("{}: '{}' is not an order; known: auto, pair, tile", flag, side.order));
  }
  return side;
}

// What a layer gave for the tokens of the prompt: [rows][width].
struct Recorded {
  int64_t width = 0;
  std::vector<float> values;
  int64_t rows() const { return width == 0 ? 0 : std::ssize(values) / width; }
};

struct Run {
  std::string dtype;
  std::vector<std::string> order;  // layers as they came
  std::map<std::string, Recorded> layers;
  engine::GenerateResult result;
};

struct DiffOptions {
  ModelOptions model;
  PromptOptions prompt;
  std::string a = "cpu", b = "spyre", format = "text";
  int64_t prompt_tokens = kDefaultPromptTokens, max_tokens = 16;
};

std::vector<int32_t> make_prompt(const DiffOptions& options, const OpenModel& open) {
  if (options.prompt.given()) return options.prompt.token_ids(text::open_tokenizer(*open.instance.checkpoint));
  std::mt19937 random(1);
  std::vector<int32_t> ids;
  const int64_t vocab = open.instance.worker->vocab_size();
  const int64_t limit = open.instance.worker->config().max_model_len, room = limit - options.max_tokens;
  if (room < 1) {
    throw_error(ErrorCode::kInvalidArgument, "--max-tokens {} leaves no room for a prompt: max_model_len is {}",
                options.max_tokens, limit);
  }
  for (int64_t i = 0; i < std::min(options.prompt_tokens, room); ++i) {
    ids.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocab)));
  }
  return ids;
}

// |prompt| is made by the first side that runs.
Run run_side(const DiffOptions& options, const Side& side, std::vector<int32_t>& prompt) {
  ModelOptions model = options.model;
  model.platform = side.platform;
  model.dtype = side.dtype;
  model.order = side.order;
  model.numerics = side.numerics;
  OpenModel open = open_model(model.config(), options.format == "text");
  if (prompt.empty()) prompt = make_prompt(options, open);
  Run run;
  run.dtype = to_string(open.instance.config.dtype.value_or(DType::kF32));
  open.instance.worker->set_layer_tap([&](const runner::LayerOutput& seen) {
    const std::string key = seen.output == 0 ? seen.layer : fmt::format("{} #{}", seen.layer, seen.output);
    const auto [found, inserted] = run.layers.try_emplace(key);
    if (inserted) run.order.push_back(key);
    Recorded& layer = found->second;
    layer.width = seen.width;
    const int64_t rows = std::min(seen.rows, std::ssize(prompt) - layer.rows());  // not of what is generated
    if (rows > 0) layer.values.insert(layer.values.end(), seen.values.begin(), seen.values.begin() + rows * seen.width);
  });
  engine::Request request{.prompt_ids = prompt};
  request.sampling = {.temperature = 0, .max_tokens = options.max_tokens, .ignore_eos = true, .logprobs = 2};
  request.sampling.prompt_logprobs = 0;  // so that every position has logits
  engine::Engine engine(*open.instance.worker, {.num_blocks = open.instance.num_kv_blocks});
  run.result = engine::generate(engine, request, {}, &interrupted);
  if (run.result.finish_reason == engine::FinishReason::kAbort) throw_error(ErrorCode::kCancelled, "interrupted");
  if (run.result.finish_reason == engine::FinishReason::kError) {
    throw_error(ErrorCode::kUnsupported, "{}: {}", side.name, run.result.error);
  }
  return run;
}

// NaN and infinities that only one side has count as infinitely far.
json compare(const std::string& name, const Recorded& a, const Recorded& b) {
  double difference = 0, largest = 0, square = 0, squares = 0;
  size_t at = 0;
  int64_t differing = 0;
  for (size_t i = 0; i < a.values.size(); ++i) {
    const float x = a.values[i], y = b.values[i];
    if (std::isfinite(x)) {
      largest = std::max(largest, std::fabs(static_cast<double>(x)));
      squares += static_cast<double>(x) * static_cast<double>(x);
    }
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    ++differing;
    double d = std::fabs(static_cast<double>(x) - static_cast<double>(y));
    if (std::isnan(d)) d = std::numeric_limits<double>::infinity();
    square += d * d;
    if (d > difference) {
      difference = d;
      at = i;
    }
  }
  const double relative = difference == 0 ? 0 : difference / largest;
  return {{"layer", name},
          {"max_abs_difference", difference},
          {"max_abs_value", largest},
          {"relative", relative},
          {"drift", square == 0 ? 0 : std::sqrt(square / squares)},
          {"position", static_cast<int64_t>(at) / a.width},
          {"differing_share", static_cast<double>(differing) / static_cast<double>(a.values.size())}};
}

json compare_greedy(const engine::GenerateResult& a, const engine::GenerateResult& b) {
  json out = {{"a_token_ids", a.token_ids}, {"b_token_ids", b.token_ids}, {"first_difference", nullptr}};
  for (size_t i = 0; i < std::min(a.token_ids.size(), b.token_ids.size()); ++i) {
    if (a.token_ids[i] == b.token_ids[i]) continue;
    const auto& top = a.logprobs[i].top;
    out["first_difference"] = {{"index", i}, {"a", a.token_ids[i]}, {"b", b.token_ids[i]}};
    if (top.size() > 1) out["first_difference"]["a_margin"] = top[0].second - top[1].second;
    break;
  }
  return out;
}

json compare_runs(const Run& a, const Run& b) {
  json layers = json::array(), skipped = json::array();
  for (const std::string& name : a.order) {
    const Recorded& mine = a.layers.at(name);
    const auto other = b.layers.find(name);
    if (other == b.layers.end() || other->second.width != mine.width ||
        other->second.values.size() != mine.values.size()) {
      skipped.push_back(name);
    } else {
      layers.push_back(compare(name, mine, other->second));
    }
  }
  return {{"layers", layers}, {"not_comparable", skipped}, {"greedy", compare_greedy(a.result, b.result)}};
}

void write_text(const json& report) {
  std::string out = fmt::format("a: {} ({})\nb: {} ({})\n{} prompt tokens\n\n", report["a"]["name"].get<std::string>(),
                                report["a"]["dtype"].get<std::string>(), report["b"]["name"].get<std::string>(),
                                report["b"]["dtype"].get<std::string>(), report["prompt_token_ids"].size());
  out += fmt::format("{:<28} {:>12} {:>12} {:>12} {:>12} {:>9} {:>9}\n", "layer", "max |a-b|", "max |a|", "relative",
                     "drift", "position", "unequal");
  for (const json& layer : report["layers"]) {
    out +=
        fmt::format("{:<28} {:>12.4g} {:>12.4g} {:>12.4g} {:>12.4g} {:>9} {:>8.2f}%\n",
                    layer["layer"].get<std::string>(), layer["max_abs_difference"].get<double>(),
                    layer["max_abs_value"].get<double>(), layer["relative"].get<double>(), layer["drift"].get<double>(),
                    layer["position"].get<int64_t>(), 100 * layer["differing_share"].get<double>());
  }
  for (const json& name : report["not_comparable"]) {
    out += fmt::format("{:<28} has another form on each side\n", name.get<std::string>());
  }
  const json& greedy = report["greedy"];
  const size_t tokens = greedy["a_token_ids"].size();
  if (greedy["first_difference"].is_null()) {
    out += fmt::format("\ngreedy: all {} tokens are equal\n", tokens);
  } else {
    const json& d = greedy["first_difference"];
    out += fmt::format(
        "\ngreedy: token {} of {} is the first that differs: {} and {}; a's first and second choice are "
        "{:.4g} apart in log-probability\n",
        d["index"].get<int64_t>() + 1, tokens, d["a"].get<int64_t>(), d["b"].get<int64_t>(), d.value("a_margin", 0.0));
  }
  write_out(out);
}

void run_diff(const DiffOptions& options) {
  const Side a = parse_side("--a", options.a), b = parse_side("--b", options.b);
  std::vector<int32_t> prompt;
  if (options.prompt.has_ids) prompt = options.prompt.parsed_ids();
  const Run first = run_side(options, a, prompt), second = run_side(options, b, prompt);
  json report = compare_runs(first, second);
  report["a"] = {{"name", a.name}, {"dtype", first.dtype}};
  report["b"] = {{"name", b.name}, {"dtype", second.dtype}};
  report["prompt_token_ids"] = prompt;
  if (options.format == "json") {
    write_out(report.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
  } else {
    write_text(report);
  }
}

}  // namespace

void add_diff(CLI::App& app) {
  CLI::App* command = app.add_subcommand("diff", "Where two platforms, types or orders part, layer by layer");
  auto options = std::make_shared<DiffOptions>();
  const char* group = "What is compared";
  command->add_option("--a", options->a, "platform[:dtype[:order]][:dl16]: the one that is right")
      ->capture_default_str()
      ->type_name("SIDE")
      ->group(group);
  command->add_option("--b", options->b, "platform[:dtype[:order]][:dl16]: the one that is judged")
      ->capture_default_str()
      ->type_name("SIDE")
      ->group(group);
  options->prompt.add_to(*command, "Prompt (one of; random ids when none is given)");
  command->add_option("--prompt-tokens", options->prompt_tokens, "How many random ids")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->group(group);
  command->add_option("--max-tokens", options->max_tokens, "Greedy tokens to compare after the prompt")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->group(group);
  command->add_option("--format", options->format, "text or json")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}))
      ->group("Output");
  options->model.add_to(*command, false);
  command->footer(
      "Examples:\n"
      "  spyre diff MODEL --a cpu:float32 --b spyre:float16       what half precision costs\n"
      "  spyre diff MODEL --a spyre:bfloat16:pair --b spyre:bfloat16:tile\n"
      "  spyre diff MODEL --a cpu:float16 --b spyre:float16       0 everywhere: equal bits\n"
      "  spyre diff MODEL --a cpu:float32 --b spyre:float16:dl16  what the card's own numbers cost\n"
      "'#1' is a block's second output: a Llama block gives its result and the residual stream apart.");
  command->final_callback([options] { run_diff(*options); });
}

}  // namespace spyre::cli
