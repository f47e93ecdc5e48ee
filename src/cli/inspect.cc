// spyre inspect: what was compiled for a model, how it lies in memory, which rules it met, what moves per step; of a
// configuration without weights, whether it would fit and how fast it would be.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/report_page.h"
#include "cli/sizing.h"

namespace spyre::cli {
namespace {

using nlohmann::json;

// Nested objects as indented lines; arrays of objects one line each.
void append_tree(std::string& out, const json& node, size_t indent) {
  const std::string pad(indent, ' ');
  for (const auto& [key, value] : node.items()) {
    if (value.is_object()) {
      out += fmt::format("{}{}:\n", pad, key);
      append_tree(out, value, indent + 2);
    } else if (value.is_array() && !value.empty() && value.front().is_object()) {
      out += fmt::format("{}{}:\n", pad, key);
      for (const json& entry : value) out += fmt::format("{}  {}\n", pad, entry.dump());
    } else {
      out += fmt::format("{}{}: {}\n", pad, key, value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
}

// What every report has, also from a platform that compiles nothing.
void complete(json& report) {
  const json none = {{"artifacts", {{"total", 0}, {"per_class", json::object()}}},
                     {"buckets", json::object()},
                     {"rules", json::array()}};
  for (const auto& [key, value] : none.items()) {
    if (!report.contains(key)) report[key] = value;
  }
}

struct Options {
  ModelOptions model;
  SizingOptions sizing;
  std::string format = "text", topic = "all", report, dump_after;
};

std::string json_text(const json& value) {
  return value.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

// A name for the page: the folder's, or the file's without what every file has.
std::string page_name(std::filesystem::path model) {
  model = model.lexically_normal();
  if (model.filename().empty() || model.filename() == "config.json") model = model.parent_path();
  const std::string name = model.extension() == ".gguf" ? model.stem().string() : model.filename().string();
  return name.empty() || name == "." ? "model" : name;
}

void write_report(const Options& options) {
  const json size = ask_size(options.model, options.sizing, true);
  json run;
  if (!is_configuration_alone(options.model.model)) {
    const OpenModel open = open_model(options.model.config(), true);
    run = open.instance.worker->report("all");
  }
  write_file(options.report, report_page(page_name(options.model.model), size, run));
}

// From the configuration alone.
void show_size(const Options& options) {
  const json answer = ask_size(options.model, options.sizing, false);
  write_out(options.format == "json" ? json_text(answer) : sizing_text(answer));
}

void show_reports(const Options& options) {
  const OpenModel open = open_model(options.model.config(), options.format == "text");
  json report = open.instance.worker->report(options.topic);
  if (report.is_null()) {
    throw_error(ErrorCode::kInvalidArgument, "--topic: the platform {} has no '{}'", open.instance.config.platform,
                options.topic);
  }
  if (options.topic == "all") complete(report);
  if (options.format == "json") return write_out(json_text(report));
  std::string text;
  append_tree(text, report.is_object() ? report : json{{options.topic, report}}, 0);
  write_out(text);
}

// Every program under a heading, as text.
void dump_programs(const Options& options) {
  const OpenModel open = open_model(options.model.config(), false);
  const json report = open.instance.worker->report("dump/" + options.dump_after);
  if (!report.is_array()) {
    throw_error(ErrorCode::kInvalidArgument, "--dump-after: the platform {} compiles nothing",
                open.instance.config.platform);
  }
  std::string text;
  for (const json& program : report) {
    text += fmt::format("== {}\n{}", program.at("graph").get<std::string>(), program.at("text").get<std::string>());
  }
  write_out(text);
}

}  // namespace

void add_inspect(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("inspect", "What is compiled, laid out and moved for a model; whether it fits");
  auto options = std::make_shared<Options>();
  command
      ->add_option("--topic", options->topic,
                   "all, device, artifacts (programs, per class and in all), buckets (ladders of sizes), rules (of the "
                   "card, and how often met), layouts, transfers (bytes), memory (bytes), warm_up (seconds), work")
      ->capture_default_str()
      ->type_name("NAME")
      ->group("Output");
  command
      ->add_flag_callback(
          "--lx", [options] { options->topic = "lx"; },
          "What lives in the card's scratchpads and why the rest does not, and what becomes of KV pages: --topic lx")
      ->group("Output");
  command
      ->add_flag_callback(
          "--passes", [options] { options->topic = "passes"; },
          "The passes of the compiler: how long each took over all programs, and what it did: --topic passes")
      ->group("Output");
  command
      ->add_option("--dump-after", options->dump_after,
                   "The programs of the largest body as text after this pass of the compiler (all: after each)")
      ->type_name("PASS")
      ->group("Output");
  command->add_option("--format", options->format, "text or json")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}))
      ->group("Output");
  command
      ->add_option(
          "--report", options->report,
          "Write one HTML page instead: fit, speed over batch, context and cards, programs with their layouts, "
          "roofline, rules")
      ->type_name("FILE")
      ->group("Output");
  options->sizing.add_to(*command);
  options->model.add_to(*command);
  command->footer(
      "MODEL may be a config.json, or a folder with nothing else: then, and with any of the sizing flags, no weights "
      "are\n"
      "read, and the answer is whether the model fits and how fast it would be (docs/sizing.md).\n"
      "\n"
      "Examples:\n"
      "  spyre inspect MODEL\n"
      "  spyre inspect MODEL --topic memory --format json\n"
      "  spyre inspect granite-8b/config.json --batch 32 --context 8192 --report granite.html\n"
      "  spyre inspect llama-70b/config.json --batch 32 --context 8192 --cards 8");
  command->final_callback([options] {
    if (!options->dump_after.empty()) return dump_programs(*options);
    if (!options->report.empty()) return write_report(*options);
    if (options->sizing.given() || is_configuration_alone(options->model.model)) return show_size(*options);
    show_reports(*options);
  });
}

}  // namespace spyre::cli
