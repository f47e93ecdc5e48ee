// The variables SPYRE_DL16_* of the settings table, read.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "plugins/spyre/device/dl16_math.h"

namespace spyre::plugin {

// |variable| gives the text of a variable, none when it is unset or empty. Throws Error(kInvalidArgument) naming the
// variable, its value and what it takes.
device::Dl16Settings read_dl16_settings(const std::function<std::optional<std::string>(const char*)>& variable);

}  // namespace spyre::plugin
