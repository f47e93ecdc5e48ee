// The program. Exit codes: 0 done, 1 failed (one line on stderr), 2 bad usage (one line on stderr), 130 interrupted.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <new>

#include "base/build_id.h"
#include "cli/command.h"
#include "cli/model_options.h"

namespace {

constexpr int kFailed = 1, kBadUsage = 2, kInterrupted = 130;

constexpr const char* kFooter =
    "MODEL is a folder as on the Hugging Face hub (config.json, *.safetensors, tokenizer.json) or a .gguf file.\n"
    "\n"
    "Examples:\n"
    "  spyre serve MODEL --port 8000           an OpenAI-compatible server\n"
    "  spyre generate MODEL --prompt 'The capital of France is' --max-tokens 16\n"
    "  spyre chat MODEL                        talk with it\n"
    "  spyre inspect MODEL                     what was compiled, laid out and moved\n"
    "  spyre bench MODEL                       speed, beside what this machine can do\n"
    "  spyre diff MODEL --a cpu --b spyre      where two platforms, types or orders part\n"
    "  spyre platforms                         where models can run\n"
    "\n"
    "Exit codes: 0 done, 1 failed (one line says why), 2 bad usage, 130 interrupted.\n"
    "Environment:\n"
    "  SPYRE_LOG_LEVEL      debug, info, warn (default), error\n"
    "  SPYRE_CPU_FEATURES   cap the kernels: portable, avx2, avx512, avx512_bf16, amx (never changes a result)\n"
    "  SPYRE_PLUGINS        load only these platform plugins: a,b\n"
    "  SPYRE_PLUGIN_PATH    more folders with plugin manifests, colon-separated";

// A message that quotes a path or an argument stays one line, whatever is in it.
std::string printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return text;
}

// What CLI11 says of a bad command line, in one line.
std::string one_line(const CLI::App* app, const CLI::Error& error) {
  std::string text = error.what();
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const auto chosen = app->get_subcommands();
  if (chosen.empty() && !app->remaining().empty()) text = "there is no command '" + app->remaining().front() + "'";
  return "spyre: " + printable(text) + "; see spyre " + (chosen.empty() ? "" : chosen.front()->get_name() + " ") +
         "--help\n";
}

int fail(int code, const std::string& what) {
  std::fflush(stdout);
  std::fprintf(stderr, "spyre: %s\n", printable(what).c_str());
  return code;
}

int run(int argc, char** argv) {
  CLI::App app{"Serves language models on IBM Spyre-class accelerators, by a software device that runs on any CPU.",
               "spyre"};
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string(spyre::build_id()));
  app.failure_message(one_line);
  app.footer(kFooter);
  app.get_formatter()->column_width(34);
  spyre::cli::add_serve(app);
  spyre::cli::add_generate(app);
  spyre::cli::add_chat(app);
  spyre::cli::add_inspect(app);
  spyre::cli::add_bench(app);
  spyre::cli::add_diff(app);
  spyre::cli::add_platforms(app);
  spyre::cli::add_replay(app);
  spyre::cli::install_interrupt();
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kBadUsage;
  } catch (const spyre::cli::UsageError& error) {
    return fail(kBadUsage, error.what());
  } catch (const spyre::Error& error) {
    return fail(error.code() == spyre::ErrorCode::kCancelled ? kInterrupted : kFailed, error.what());
  } catch (const std::bad_alloc&) {
    return fail(kFailed, "out of memory");
  } catch (const std::exception& error) {
    return fail(kFailed, std::string("unexpected: ") + error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv);
}
