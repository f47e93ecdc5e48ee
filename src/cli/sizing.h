// `spyre inspect` of a model whose weights are not there, or that is asked about with --batch, --context or --cards:
// the platform's answer from the configuration alone, as text.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "cli/model_options.h"

namespace CLI {
class App;
}

namespace spyre::cli {

struct SizingOptions {
  std::optional<int64_t> batch, context, prompt, cards;

  void add_to(CLI::App& command);
  bool given() const { return batch || context || prompt || cards; }
};

// Whether |model| is a config.json, or a folder that has one and no weights: PyTorch's files are weights, though a run
// refuses them.
bool is_configuration_alone(const std::filesystem::path& model);

// What the platform of |model| says. Throws Error(kUnsupported) when it cannot tell, UsageError for --enforce-eager,
// and what reading the file throws.
nlohmann::json ask_size(const ModelOptions& model, const SizingOptions& options, bool details);

// A page of text; lines of the terminal's width.
std::string sizing_text(const nlohmann::json& answer);

}  // namespace spyre::cli
