// The load generator of `spyre bench serve`, a subcommand of bench.
#pragma once

namespace CLI {
class App;
}

namespace spyre::cli {

void add_serve_bench(CLI::App& bench);

}  // namespace spyre::cli
