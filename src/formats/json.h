// JSON from untrusted files, for small ones (configurations) that are wanted as a tree.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/export.h"

namespace spyre::formats {

// A tree takes up to 30 times its text, so the text is bounded (kResourceExhausted) before it is parsed.
inline constexpr size_t kMaxJsonBytes = 2 << 20;
inline constexpr int kMaxJsonDepth = 64;

// An object, or kCorruptData: broken JSON (with the place), nested deeper than 64, or no object. `name` stands in
// messages. Of a key that stands twice the last one counts, as in Python.
SPYRE_API nlohmann::json parse_json_object(std::string_view text, const std::string& name);

}  // namespace spyre::formats
