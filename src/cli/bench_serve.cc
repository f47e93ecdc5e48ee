// spyre bench serve: what users of a server get under a load, its own or that of any OpenAI-compatible one.
#include "cli/bench_serve.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/bench_load.h"
#include "cli/bench_mix.h"
#include "cli/bench_summary.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/server_process.h"
#include "formats/checkpoint.h"

namespace spyre::cli {
namespace {

using nlohmann::json;

constexpr int64_t kUnknownVocabulary = 1000;  // ids that every model has

struct ServeBenchOptions {
  std::string model, url, served_name, key, format = "text";
  std::vector<std::string> server_flags;
  LengthMix mix;
  GoodputLimits limits;
  int64_t requests = 200, clients = 16, vocabulary = 0, warm_up = 4;
  double rate = 0;
  uint64_t seed = 1;
};

// The model of a server, by its own account; |name| "" is its first.
struct ServedName {
  std::string name;
  int64_t max_model_len = 0;
};

ServedName ask_model(const LoadTarget& target, const std::string& name) {
  const json page = json::parse(http_get(target, "/v1/models"), nullptr, false);
  if (page.is_object() && page.contains("data") && page["data"].is_array()) {
    for (const json& card : page["data"]) {
      if (!card.is_object() || !card.contains("id")) continue;
      if (!name.empty() && card["id"] != name) continue;
      const auto length = card.find("max_model_len");
      const bool known = length != card.end() && length->is_number_integer();
      return {card["id"].get<std::string>(), known ? length->get<int64_t>() : 2048};
    }
  }
  throw_error(ErrorCode::kNotFound, "the server at {}:{} has no model {}", target.host, target.port,
              name.empty() ? "at all" : "'" + name + "'");
}

std::string metrics_of(const LoadTarget& target) {
  try {
    return http_get(target, "/metrics");
  } catch (const Error&) {  // a server without them
    return "";
  }
}

std::string times_line(const char* what, const json& p) {
  if (p.is_null()) return fmt::format("{:<12} -\n", what);
  const auto ms = [&](const char* key) { return 1e3 * p[key].get<double>(); };
  return fmt::format("{:<12} {:>10.1f} {:>10.1f} {:>10.1f} {:>10.1f}  ms\n", what, ms("p50"), ms("p90"), ms("p99"),
                     ms("max"));
}

std::string lengths_line(const char* what, const json& l) {
  return fmt::format("{:<12} mean {:.0f}, p50 {:.0f}, p90 {:.0f}, p99 {:.0f}, longest {:.0f} tokens\n", what,
                     l["mean"].get<double>(), l["p50"].get<double>(), l["p90"].get<double>(), l["p99"].get<double>(),
                     l["max"].get<double>());
}

std::string text_of(const json& r) {
  const json& s = r["summary"];
  const json& good = s["goodput"];
  std::string out = fmt::format("model        {} at {}\n", r["model"].get<std::string>(), r["url"].get<std::string>());
  out +=
      lengths_line("prompts", r["lengths"]["prompt_tokens"]) + lengths_line("answers", r["lengths"]["output_tokens"]);
  out += fmt::format("load         {} requests, seed {}, {}\n", s["requests"].get<int64_t>(), r["seed"].get<uint64_t>(),
                     r["load"].get<std::string>());
  out += fmt::format("\n{:<12} {:>10} {:>10} {:>10} {:>10}\n", "", "p50", "p90", "p99", "max");
  out += times_line("first token", s["first_token"]) + times_line("token gap", s["token_gap"]) +
         times_line("end to end", s["end_to_end"]);
  out += fmt::format("\nthroughput   {:.1f} tokens/s of answers, {:.1f} with prompts, {:.2f} requests/s, {:.1f} s\n",
                     s["output_tokens_per_second"].get<double>(), s["total_tokens_per_second"].get<double>(),
                     s["requests_per_second"].get<double>(), s["seconds"].get<double>());
  out += fmt::format(
      "goodput      {:.2f} requests/s ({:.1f}% of them: first token within {:.0f} ms, then {:.0f} ms a "
      "token or less)\n",
      good["requests_per_second"].get<double>(), 100 * good["share"].get<double>(),
      1e3 * good["max_first_token"].get<double>(), 1e3 * good["max_mean_gap"].get<double>());
  for (const auto& [error, count] : s["errors"].items()) {
    out += fmt::format("failed       {} x {}\n", count.get<int64_t>(), error);
  }
  if (r["padding"].is_null()) return out;
  for (const auto& [part, p] : r["padding"].items()) {
    out += fmt::format("{:<12} {:.1f}% of the rows that the card computes ({:.0f} of {:.0f})\n", "padding, " + part,
                       100 * p["share"].get<double>(), p["padding"].get<double>(),
                       p["padding"].get<double>() + p["live"].get<double>());
  }
  return out + fmt::format("compiled     {:.0f} programs while serving\n", r["compiles_after_ready"].get<double>());
}

json measure(const ServeBenchOptions& o, const LoadTarget& target, int64_t vocabulary) {
  const ServedName served = ask_model(target, o.served_name);
  const auto requests = draw_requests(o.mix, o.requests, o.seed, vocabulary, served.max_model_len, o.rate);
  if (o.warm_up > 0) {
    LengthMix small{.max_prompt = 64, .max_output = 8};
    run_load(target, served.name, draw_requests(small, o.warm_up, o.seed + 1, vocabulary, served.max_model_len, 0),
             o.warm_up, interrupted);
  }
  const std::string before = metrics_of(target);
  const std::vector<LoadResult> results =
      run_load(target, served.name, requests, o.rate > 0 ? 0 : o.clients, interrupted);
  const std::string after = metrics_of(target);
  return {{"model", served.name},
          {"url", fmt::format("http://{}:{}{}", target.host, target.port, target.prefix)},
          {"seed", o.seed},
          {"load", o.rate > 0 ? fmt::format("Poisson arrivals, {:g} a second", o.rate)
                              : fmt::format("closed loop of {} clients", o.clients)},
          {"mix",
           {{"distribution", "log-normal"},
            {"prompt_median", o.mix.prompt_median},
            {"prompt_sigma", o.mix.prompt_sigma},
            {"output_median", o.mix.output_median},
            {"output_sigma", o.mix.output_sigma},
            {"max_prompt", o.mix.max_prompt},
            {"max_output", o.mix.max_output}}},
          {"lengths", describe_lengths(requests)},
          {"summary", summarize(requests, results, o.limits)},
          {"padding", padding_between(before, after)},
          {"compiles_after_ready", metric(after, "spyre_compiles_after_ready_total")}};
}

void run(const ServeBenchOptions& o) {
  if (o.model.empty() == o.url.empty())
    throw UsageError("give a MODEL to serve, or the --url of a server: one of them");
  LoadTarget target;
  std::optional<ServerProcess> server;
  int64_t vocabulary = o.vocabulary;
  if (o.url.empty()) {
    if (vocabulary == 0) vocabulary = formats::Checkpoint::open(o.model)->config().vocab_size;
    server.emplace(o.model, o.server_flags, interrupted);
    target = parse_url(server->url());
  } else {
    target = parse_url(o.url);
  }
  target.key = o.key;
  const json report = measure(o, target, vocabulary > 0 ? vocabulary : kUnknownVocabulary);
  write_out(o.format == "json" ? report.dump(2, ' ', false, json::error_handler_t::replace) + "\n" : text_of(report));
}

void add_load(CLI::App& command, ServeBenchOptions& o) {
  const char* group = "Load";
  const auto count = [&](const char* flag, auto& value, const char* help, int64_t least = 1) {
    command.add_option(flag, value, help)
        ->capture_default_str()
        ->check(CLI::Range(least, int64_t{1} << 30))
        ->type_name("N")
        ->group(group);
  };
  const auto number = [&](const char* flag, double& value, const char* help, const char* unit) {
    command.add_option(flag, value, help)->capture_default_str()->type_name(unit)->group(group);
  };
  count("--requests", o.requests, "Requests in all");
  count("--clients", o.clients, "A closed loop: so many clients, each with one request at a time");
  number("--rate", o.rate, "Instead: requests come as a Poisson process of so many a second; 0: closed loop", "PER_S");
  count("--seed", o.seed, "Lengths, ids and arrivals follow from it", 0);
  number("--prompt-median", o.mix.prompt_median, "Length of prompts, log-normal: its median", "TOKENS");
  number("--prompt-sigma", o.mix.prompt_sigma, "Deviation of its logarithm", "S");
  count("--max-prompt", o.mix.max_prompt, "Longest prompt");
  number("--output-median", o.mix.output_median, "Length of answers, log-normal: its median", "TOKENS");
  number("--output-sigma", o.mix.output_sigma, "Deviation of its logarithm", "S");
  count("--max-output", o.mix.max_output, "Longest answer");
  count("--vocab-size", o.vocabulary, "Ids of prompts are below it; 0: the model's, with --url 1000", 0);
  count("--warm-up", o.warm_up, "Short requests before the load, which do not count", 0);
}

}  // namespace

void add_serve_bench(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand("serve", "What users of a server get under a load: latencies, goodput");
  auto options = std::make_shared<ServeBenchOptions>();
  ServeBenchOptions& o = *options;
  command->add_option("MODEL", o.model, "Served by a server that is started for the run, on a free port");
  command->add_option("SERVER_FLAGS", o.server_flags, "After --: flags of that server, as of spyre serve");
  const char* group = "Server";
  command->add_option("--url", o.url, "Instead: a server that runs, http://HOST[:PORT][/PREFIX]")->group(group);
  command->add_option("--model-name", o.served_name, "Its model in requests [its first]")
      ->type_name("NAME")
      ->group(group);
  command->add_option("--api-key", o.key, "Sent as a bearer token")->type_name("KEY")->group(group);
  add_load(*command, o);
  const auto limit = [&](const char* flag, double& seconds, const char* help) {
    command->add_option_function<double>(
               flag, [&seconds](double ms) { seconds = ms * 1e-3; }, help)
        ->default_str(fmt::format("{:g}", 1e3 * seconds))
        ->check(CLI::Range(0.0, 1e9))
        ->type_name("MS")
        ->group("Goodput");
  };
  limit("--max-first-token-ms", o.limits.first_token, "A good request has its first token within this");
  limit("--max-mean-gap-ms", o.limits.mean_gap, "... and on average so much between two tokens");
  command->add_option("--format", o.format, "text or json")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}))
      ->group("Output");
  command->footer(
      "Lengths are log-normal, like those of shared conversations: medians 96 and 128 tokens, means 197 and 192.\n"
      "Example: spyre bench serve MODEL --rate 4 --requests 400 -- --max-num-seqs 64");
  command->final_callback([options] { run(*options); });
}

}  // namespace spyre::cli
