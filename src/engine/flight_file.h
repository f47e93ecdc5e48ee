// Recordings as files: JSON with ids, token numbers, block numbers and sampling parameters, and the model and
// configuration they come from, so that `spyre replay FILE` needs nothing else. No text is in them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/flight_recorder.h"
#include "platform/config.h"

namespace spyre::engine {

// Through a temporary file beside |path|, so that a reader never sees half of it. Throws Error(kUnavailable).
void write_recording(const Recording& recording, const std::filesystem::path& path);
// Throws Error: what read_file() throws, and kCorruptData for what is no recording. Every value has its type and fits
// it (flight_value.h); whether the steps make sense is for the worker that runs them to say.
Recording read_recording(const std::filesystem::path& path);
Recording parse_recording(const std::string& text);

// Recording::origin. |num_blocks|: of the KV cache, the null block included.
nlohmann::json origin_of(const platform::EngineConfig& config, int64_t num_blocks);
// Throws Error(kCorruptData). Ranges are for Platform::check_and_update_config, as with what a user gives.
platform::EngineConfig config_of(const nlohmann::json& origin);

nlohmann::json to_json(const Recording& recording);
Recording recording_from(const nlohmann::json& in);  // throws Error(kCorruptData)

}  // namespace spyre::engine
