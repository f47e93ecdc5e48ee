// Logging: one process-wide logger on stderr, so that stdout stays clean for results. Level from SPYRE_LOG_LEVEL
// (trace, debug, info, warn, error, off); the default is warn, and the server raises it to info.
#pragma once

#include <spdlog/spdlog.h>

#include "base/export.h"

namespace spyre {

SPYRE_API spdlog::logger& log();

}  // namespace spyre
