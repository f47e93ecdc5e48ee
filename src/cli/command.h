// A subcommand of the program: its flags, and what it does. Commands are made by the functions below and live as long
// as the CLI::App they were added to.
#pragma once

#include <string>

#include "base/error.h"

namespace CLI {
class App;
}

namespace spyre::cli {

// The command line itself is wrong, whatever the model: exit code 2 instead of 1.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(ErrorCode::kInvalidArgument, message) {}
};

// Adds a subcommand to |app|. What it does when chosen runs after parsing and throws Error for whatever goes wrong.
void add_serve(CLI::App& app);
void add_generate(CLI::App& app);
void add_chat(CLI::App& app);
void add_inspect(CLI::App& app);
void add_bench(CLI::App& app);
void add_diff(CLI::App& app);
void add_platforms(CLI::App& app);
void add_replay(CLI::App& app);

}  // namespace spyre::cli
