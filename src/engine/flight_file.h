// Recordings as files: JSON with ids, token numbers, block numbers and sampling parameters, and the model and
// configuration they come from, so that `spyre replay FILE` needs nothing else. No text is in them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/flight_recorder.h"
#include "platform/config.h"

namespace spyre::engine {

// Through a temporary file beside |path|, so that a reader never sees half of it. Throws Error(kUnavailable).
void write_recording(const Recording& recording, const std::filesystem::path& path);
// Throws Error: what read_file() throws, and kCorruptData for what is no recording.
Recording read_recording(const std::filesystem::path& path);

// Recording::origin. |num_blocks|: of the KV cache, the null block included.
nlohmann::json origin_of(const platform::EngineConfig& config, int64_t num_blocks);
// Throws Error(kCorruptData).
platform::EngineConfig config_of(const nlohmann::json& origin);

nlohmann::json to_json(const Recording& recording);
Recording recording_from(const nlohmann::json& json);

}  // namespace spyre::engine
