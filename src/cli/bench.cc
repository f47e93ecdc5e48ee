// spyre bench: how fast a model runs here, beside what this machine can do at best.
#include "cli/bench.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/bench_drive.h"
#include "cli/bench_serve.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/trace_file.h"

namespace spyre::cli {
namespace {

using nlohmann::json;

struct BenchOptions {
  ModelOptions model;
  BenchSizes sizes;
  std::string format = "text", trace;
};

std::string mb(const json& bytes) {
  return fmt::format("{:.1f} MB", bytes.get<double>() * 1e-6);
}

std::string number(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string start_text(const json& s) {
  return fmt::format(
      "start      {:.2f} s to the first token of a {}-token prompt: load {:.2f} s; compile {:.2f} s ({} programs, {} "
      "attention variants); run {:.3f} s ({})\n",
      s["first_token_seconds"].get<double>(), s["prompt_tokens"].get<int64_t>(), s["load_seconds"].get<double>(),
      s["compile_seconds"].get<double>(), s["programs_compiled"].get<int64_t>(), s["attention_variants"].get<int64_t>(),
      s["execute_seconds"].get<double>(), s["executed"].get<std::string>());
}

std::string speeds_text(const json& report) {
  const json& prefill = report["prefill"];
  const json& decode = report["decode"];
  std::string out = fmt::format("\n{:<10} {:>7} {:>10}   {}\n", "", "tokens", "tokens/s", "of the machine's limit");
  out += fmt::format("{:<10} {:>7} {:>10.1f}   ", "prefill", prefill["tokens"].get<int64_t>(),
                     prefill["tokens_per_second"].get<double>());
  if (prefill["ratio"].is_null()) {
    out += "not measured on this platform\n";
  } else {
    out += fmt::format("{:.1f}% of {:.1f} GFLOP/s ({})\n", 100 * prefill["ratio"].get<double>(),
                       prefill["limit_gflops"].get<double>(), prefill["instruction"].get<std::string>());
  }
  out += fmt::format("{:<10} {:>7} {:>10.1f}   ", "decode", decode["tokens"].get<int64_t>(),
                     decode["tokens_per_second"].get<double>());
  if (decode["ratio"].is_null()) return out + "not measured on this platform\n";
  return out +
         fmt::format("{:.1f}% of {:.1f} tokens/s = {:.1f} GB/s (stream over {}) / {} per token\n",
                     100 * decode["ratio"].get<double>(), decode["limit_tokens_per_second"].get<double>(),
                     decode["limit_gbps"].get<double>(), mb(decode["stream_bytes"]), mb(decode["bytes_per_token"])) +
         fmt::format("{:<10} {:>7} {:>10.3f}   ms between two of its steps\n", "gap", "",
                     1e3 * decode["gap_seconds"].get<double>());
}

std::string batch_text(const json& b) {
  std::string out = fmt::format("{:<10} {:>7} {:>10.1f}   {:.2f} ms a step", "batch", b["sequences"].get<int64_t>(),
                                b["tokens_per_second"].get<double>(), 1e3 * b["step_seconds"].get<double>());
  if (b["ratio"].is_null()) return out + "\n";
  return out + fmt::format(", {:.1f}% of the limit: products {:.2f} ms, memory {:.2f} ms\n",
                           100 * b["ratio"].get<double>(), 1e3 * b["compute_seconds"].get<double>(),
                           1e3 * b["memory_seconds"].get<double>());
}

std::string meters_text(const json& meters) {
  std::string out =
      fmt::format("\n{:<28} {:>12} {:>12}\n", "meters", "1 thread", number(meters["threads"]) + " threads");
  for (const json& p : meters["peaks"]) {
    out += fmt::format("{:<28} {:>12.1f} {:>12.1f}  GFLOP/s\n", p["instruction"].get<std::string>(),
                       p["gflops_1_thread"].get<double>(), p["gflops"].get<double>());
  }
  const json& s = meters["stream"];
  return out + fmt::format("{:<28} {:>12.1f} {:>12.1f}  GB/s\n", "stream over " + mb(s["bytes"]),
                           s["gbps_1_thread"].get<double>(), s["gbps"].get<double>());
}

void write_text(const json& report, int64_t repeat) {
  const json& machine = report["machine"];
  std::string out = fmt::format("model      {}\nmachine    {}\n", number(report["model"]), number(machine["cpu"]));
  out += fmt::format("running    platform {}, {}, order {}", number(machine["platform"]), number(machine["dtype"]),
                     number(machine["order"]));
  if (machine.contains("kernels")) {
    out += fmt::format(", kernels {} (GEMM {}), {} threads", number(machine["kernels"]), number(machine["gemm"]),
                       number(machine["threads"]));
  }
  const json& m = report["memory"];
  out += "\n" + start_text(report["start"]);
  const bool more =
      m["rest_bytes"].get<int64_t>() >= 0;  // pages of the KV cache that nothing was written to do not count
  out += fmt::format("memory     RSS {} (peak {}); anonymous {}; weights {}, KV {}, {}\n", mb(m["rss_bytes"]),
                     mb(m["peak_rss_bytes"]), mb(m["rss_anon_bytes"]), mb(m["weight_bytes"]), mb(m["kv_bytes"]),
                     more ? "everything else " + mb(m["rest_bytes"]) : "not all of it touched yet");
  out += speeds_text(report);
  if (report.contains("batch")) out += batch_text(report["batch"]);
  out += fmt::format("{:<10} medians of {}, each between two measurements of the limit\n", "", repeat);
  if (report.contains("meters")) out += meters_text(report["meters"]);
  write_out(out);
}

// Sizes that were not asked for shrink to the model.
void fit_defaults(const CLI::App& command, const OpenModel& open, BenchSizes& sizes) {
  const int64_t limit = open.instance.worker->config().max_model_len;
  if (command.count("--output-tokens") == 0) {
    sizes.output_tokens = std::max<int64_t>(2, std::min(sizes.output_tokens, limit / 4));
  }
  if (command.count("--prompt-tokens") == 0) {
    sizes.prompt_tokens = std::max<int64_t>(1, std::min(sizes.prompt_tokens, limit - sizes.output_tokens));
  }
}

std::string as_line(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

void drive(const ModelOptions& options) {
  platform::EngineConfig config = options.config();
  config.serving = true;
  OpenModel open = open_model(config, false);
  BenchDrive session(open);
  write_out(as_line(session.opened()));
  for (std::string line; !interrupted && std::getline(std::cin, line);) write_out(as_line(session.answer(line)));
}

void add_drive(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand("drive", "Answers what a script on stdin asks: requests, limits, reports");
  auto options = std::make_shared<ModelOptions>();
  options->add_to(*command);
  command->footer(
      "A JSON object a line, an answer a line; the first line says what was opened.\n"
      "  {\"run\": {\"prompts\": [[1, 2, 3]], \"output_tokens\": 4}}   when each token came, in seconds\n"
      "  {\"limits\": {\"stream_bytes\": 270000000}}               what the machine can do now\n"
      "  {\"report\": \"rows\"}                                   a report of the worker's");
  command->final_callback([options] { drive(*options); });
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand("bench", "How fast a model runs, beside what this machine can do");
  add_serve_bench(*command);
  add_drive(*command);
  auto options = std::make_shared<BenchOptions>();
  const char* group = "What is measured";
  command->add_option("--prompt-tokens", options->sizes.prompt_tokens, "Tokens of the prompt (random ids)")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->group(group);
  command->add_option("--output-tokens", options->sizes.output_tokens, "Tokens generated after it, one sequence")
      ->capture_default_str()
      ->check(CLI::Range(2, 1 << 20))
      ->type_name("N")
      ->group(group);
  command->add_option("--repeat", options->sizes.repeat, "Samples; medians are reported")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000))
      ->type_name("N")
      ->group(group);
  command->add_option("--batch", options->sizes.batch, "Sequences that decode together, measured as well [none]")
      ->check(CLI::Range(2, 4096))
      ->type_name("N")
      ->group(group);
  command->add_option("--format", options->format, "text or json (which has every sample)")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}))
      ->group("Output");
  add_trace_flag(*command, options->trace);
  options->model.add_to(*command);
  command->get_option("MODEL")->required(false);  // its subcommands have a MODEL of their own
  command->footer(
      "Units: MB is 10^6 bytes, GB/s 10^9. The limits are measured in the same run: inline assembly that does nothing\n"
      "but multiply and add, and reading a buffer of the weights' size.");
  command->final_callback([command, options] {
    if (!command->get_subcommands().empty()) return;
    if (options->model.model.empty()) throw UsageError("MODEL is required");
    platform::EngineConfig config = options->model.config();
    if (options->sizes.batch > 0) {  // a cache for all of them
      config.serving = true;
      if (!config.max_num_seqs) config.max_num_seqs = options->sizes.batch;
    }
    OpenModel open = open_model(config, options->format == "text");
    fit_defaults(*command, open, options->sizes);
    TraceFile trace(options->trace, *open.instance.worker);
    const json report = measure_model(open, options->sizes);
    trace.finish();
    if (options->format == "json") return write_out(report.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
    write_text(report, options->sizes.repeat);
  });
}

}  // namespace spyre::cli
