// Logging: one process-wide logger on stderr, so that stdout stays clean for results. Level from SPYRE_LOG_LEVEL
// (trace, debug, info, warn, error, off); the default, and what another word means, is warn.
#pragma once

#include <spdlog/spdlog.h>

#include "base/export.h"

namespace spyre {

SPYRE_API spdlog::logger& log();

}  // namespace spyre
