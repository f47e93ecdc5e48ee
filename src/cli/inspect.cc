// spyre inspect: what was compiled for a model, how it lies in memory, which rules it met, what moves per step.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/output.h"

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

}  // namespace

void add_inspect(CLI::App& app) {
  CLI::App* command = app.add_subcommand("inspect", "What is compiled, laid out and moved for a model");
  struct Options {
    ModelOptions model;
    std::string format = "text", topic = "all";
  };
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
  command->add_option("--format", options->format, "text or json")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}))
      ->group("Output");
  options->model.add_to(*command);
  command->footer("Examples:\n  spyre inspect MODEL\n  spyre inspect MODEL --topic memory --format json");
  command->final_callback([options] {
    const OpenModel open = open_model(options->model.config(), options->format == "text");
    json report = open.instance.worker->report(options->topic);
    if (report.is_null()) {
      throw_error(ErrorCode::kInvalidArgument, "--topic: the platform {} has no '{}'", open.instance.config.platform,
                  options->topic);
    }
    if (options->topic == "all") complete(report);
    if (options->format == "json") return write_out(report.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
    std::string text;
    append_tree(text, report.is_object() ? report : json{{options->topic, report}}, 0);
    write_out(text);
  });
}

}  // namespace spyre::cli
