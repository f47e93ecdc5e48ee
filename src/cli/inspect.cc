// spyre inspect: what was compiled for a model, how it lies in memory, which rules it met, what moves per step.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/command.h"
#include "cli/model_options.h"

namespace spyre::cli {
namespace {

using nlohmann::json;

// Nested objects as indented lines; arrays of objects one line each.
void print_tree(const json& node, int indent) {
  const std::string pad(static_cast<size_t>(indent), ' ');
  for (const auto& [key, value] : node.items()) {
    if (value.is_object()) {
      std::printf("%s%s:\n", pad.c_str(), key.c_str());
      print_tree(value, indent + 2);
    } else if (value.is_array() && !value.empty() && value.front().is_object()) {
      std::printf("%s%s:\n", pad.c_str(), key.c_str());
      for (const json& entry : value) std::printf("%s  %s\n", pad.c_str(), entry.dump().c_str());
    } else {
      std::printf("%s%s: %s\n", pad.c_str(), key.c_str(),
                  value.is_string() ? value.get<std::string>().c_str() : value.dump().c_str());
    }
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
  options->model.add_to(*command);
  command
      ->add_option("--topic", options->topic,
                   "all, device, artifacts, buckets, rules, layouts, transfers, memory, warm_up")
      ->capture_default_str();
  command->add_option("--format", options->format, "text or json")->capture_default_str();
  command->final_callback([options] {
    if (options->format != "text" && options->format != "json") {
      throw_error(ErrorCode::kInvalidArgument, "--format '{}' is not known; known: text, json", options->format);
    }
    const OpenModel open = open_model(options->model.config(), options->format == "text");
    const json report = open.instance.worker->report(options->topic);
    if (report.is_null()) throw_error(ErrorCode::kInvalidArgument, "--topic '{}' is not known", options->topic);
    if (options->format == "json") {
      std::puts(report.dump(2).c_str());
    } else {
      print_tree(report.is_object() ? report : json{{options->topic, report}}, 0);
    }
  });
}

}  // namespace spyre::cli
