// Refusing what is not built: a config key that changes the maths must never be skipped in silence.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/export.h"

namespace spyre::nn {

// Goes through the top-level keys of a config.json. Keys in |handled| are the caller's. Keys that are known to be
// harmless (token ids, training settings, provenance) pass. A key that is known to change the maths, or whose name says
// so (multiplier, softcap, window, rotary, expert, quant, ...), passes only with a neutral value (null, false, 0, 1,
// "", or an empty list); otherwise Error(kUnsupported) names key, value and architecture. Other unknown keys are
// logged.
SPYRE_API void refuse_unbuilt_keys(const nlohmann::json& config, std::string_view architecture,
                                   const std::vector<std::string_view>& handled);

}  // namespace spyre::nn
