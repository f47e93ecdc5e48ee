// The program. Exit codes: 0 done, 1 failed (one line on stderr), 2 bad usage.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "base/build_id.h"
#include "base/error.h"
#include "cli/command.h"
#include "cli/model_options.h"

int main(int argc, char** argv) {
  CLI::App app{"Serves language models on IBM Spyre-class accelerators, by a software device that runs on any CPU.",
               "spyre"};
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string(spyre::build_id()));
  app.footer(
      "Examples:\n"
      "  spyre generate MODEL --prompt 'The capital of France is' --max-tokens 16\n"
      "  spyre inspect MODEL");
  spyre::cli::add_generate(app);
  spyre::cli::add_inspect(app);
  spyre::cli::install_interrupt();
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const spyre::Error& error) {
    std::fprintf(stderr, "spyre: %s\n", error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "spyre: unexpected: %s\n", error.what());
  }
  return 1;
}
