// spyre replay: the last steps of an engine, run again bit for bit.
#include <CLI/CLI.hpp>
#include <memory>

#include "base/build_id.h"
#include "base/error.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "engine/flight_file.h"
#include "engine/replay.h"

namespace spyre::cli {
namespace {

struct ReplayOptions {
  std::string file, model, platform;
};

platform::EngineConfig config_of(const engine::Recording& recording, const std::string& file) {
  try {
    return engine::config_of(recording.origin);
  } catch (const Error& error) {
    throw_error(error.code(), "'{}': {}", file, error.what());
  }
}

void run_replay(const ReplayOptions& options) {
  const engine::Recording recording = engine::read_recording(options.file);
  platform::EngineConfig config = config_of(recording, options.file);
  if (!options.model.empty()) config.model = options.model;
  if (!options.platform.empty()) config.platform = options.platform;
  const std::string build = recording.origin.value("build", "");
  write_out(fmt::format("{} steps of {} on {}, build {}{}\n", recording.steps.size(), config.model.string(),
                        config.platform, build, build == build_id() ? "" : fmt::format(" (this is {})", build_id())));
  OpenModel open = open_model(config, true);
  const engine::ReplayReport report = engine::replay(*open.instance.worker, recording, [](uint64_t) {
    if (interrupted) throw_error(ErrorCode::kCancelled, "interrupted");
  });
  if (!report.first) {
    return write_out(fmt::format("{} steps run again, {} tokens equal\n", report.steps, report.tokens));
  }
  const auto& d = *report.first;
  throw_error(ErrorCode::kInternal, "step {}{} differs: recorded {}; replayed {}", d.step,
              d.request.empty() ? "" : ", request " + d.request, d.recorded, d.replayed);
}

}  // namespace

void add_replay(CLI::App& app) {
  CLI::App* command = app.add_subcommand("replay", "Run the recorded last steps of a server again, bit for bit");
  auto options = std::make_shared<ReplayOptions>();
  command->add_option("FILE", options->file, "A recording: written when a step fails, or on SIGUSR1")->required();
  command->add_option("--model", options->model, "The model, if it is not where it was")->type_name("MODEL");
  command->add_option("--platform", options->platform, "Another platform than the one recorded")->type_name("NAME");
  command->footer(
      "The recording has ids, token numbers and sampling parameters, no text. It names the model and its limits.\n"
      "Exit code 0: every step gave the tokens that were recorded; 1: the first difference is named.");
  command->final_callback([options] { run_replay(*options); });
}

}  // namespace spyre::cli
