// A subcommand of the program: its flags, and what it does. Commands are made by the functions below and live as long
// as the CLI::App they were added to.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace spyre::cli {

// Adds a subcommand to |app|. What it does when chosen runs after parsing and throws Error for whatever goes wrong.
void add_generate(CLI::App& app);
void add_inspect(CLI::App& app);

}  // namespace spyre::cli
