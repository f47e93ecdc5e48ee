// The flags that say how tokens are chosen, shared by the commands that generate.
#pragma once

#include "runner/step.h"

namespace CLI {
class App;
}

namespace spyre::cli {

// |sampling| must live as long as |command|; its values are the defaults.
void add_sampling(CLI::App& command, runner::SamplingParams& sampling);

}  // namespace spyre::cli
