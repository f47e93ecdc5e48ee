// How the makers of a model want it sampled: the sampling keys of its generation_config.json. (The EOS ids of that file
// belong to ModelConfig.)
//
// A value type; stateless functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/export.h"

namespace spyre::formats {

class Checkpoint;

// Only what the file gives; each in the range that a request may ask for.
struct SPYRE_API GenerationDefaults {
  std::optional<double> temperature;         // 0 .. 10^6
  std::optional<double> top_p;               // above 0, to 1
  std::optional<int64_t> top_k;              // -1 ..; 0 and -1: all
  std::optional<double> min_p;               // 0 .. 1
  std::optional<double> repetition_penalty;  // above 0, to 10^6
  std::optional<int64_t> max_new_tokens;     // 1 ..

  std::string to_string() const;  // "temperature 0.7, top_k 20", or ""
};

// kCorruptData, naming the file and the key, for another type or a value out of range. do_sample does not count, as in
// vLLM: with temperature 0.6 beside do_sample false, 0.6 is meant.
SPYRE_API GenerationDefaults parse_generation_defaults(std::string_view text, const std::string& name);

// Of a model folder's generation_config.json; empty without one, and for GGUF files.
SPYRE_API GenerationDefaults read_generation_defaults(const Checkpoint& checkpoint);

}  // namespace spyre::formats
