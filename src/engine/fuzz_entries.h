// What a fuzzer does with its input, shared with the test that replays the corpus (as formats/fuzz_entries.h): the text
// of the error, "" when the input was taken. Anything but an Error leaves the function and is a bug.
#pragma once

#include <string>

#include "base/error.h"
#include "engine/flight_file.h"
#include "engine/replay.h"
#include "engine/test_rig.h"

namespace spyre::engine {

// A recording: read, written and read again, and its steps run on a small worker.
inline std::string fuzz_recording(const std::string& text) {
  try {
    const Recording recording = parse_recording(text);
    const nlohmann::json written = to_json(recording);
    SPYRE_CHECK(to_json(recording_from(written)) == written);
    if (recording.origin.is_object()) (void)config_of(recording.origin);
    testing::WorkerRig rig({.max_num_batched_tokens = 12, .num_blocks = 20, .max_num_seqs = 5});
    (void)replay(*rig.worker, recording);
  } catch (const Error& error) {
    SPYRE_CHECK(error.code() != ErrorCode::kInternal, "{}", error.what());
    return error.what();
  }
  return "";
}

}  // namespace spyre::engine
