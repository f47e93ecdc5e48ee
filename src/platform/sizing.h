// A question about a model that need not be there: would it fit, and how fast would it be? Answered from the numbers of
// its configuration alone (Platform::size_model); no weights are read and no device is opened.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/dtype.h"

namespace spyre::platform {

struct SizingQuestion {
  nlohmann::json config;           // of config.json
  std::string name;                // where it comes from, for messages
  int64_t batch = 1;               // sequences at once
  std::optional<int64_t> context;  // longest sequence, prompt and answer together; unset = the model's, at most 8192
  std::optional<int64_t> prompt;   // of each sequence; unset = half of the context
  int64_t cards = 1;
  int64_t block_size = 128;   // tokens of a KV block
  int64_t step_tokens = 512;  // most rows of a step: longer prompts are read in chunks
  bool details = false;       // also tokens over batch, context and cards, and the programs of a step, for drawing
};

}  // namespace spyre::platform
