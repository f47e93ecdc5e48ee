// How much memory this process may still take, and refusing what does not fit before it is taken: an allocation that
// the system grants and cannot back ends the process, not the request.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/export.h"

namespace spyre::platform {

// Bytes: the least of MemAvailable (/proc/meminfo) and, for this process's cgroup (v1 or v2) and each ancestor, its
// limit minus its use without the page cache that can be dropped. -1 when nothing is known. |root| stands before /proc
// and /sys (tests pass a folder).
SPYRE_API int64_t available_memory(const std::string& root = "");

// Bytes of anonymous memory this process holds (RssAnon of /proc/self/status); 0 when nothing is known.
SPYRE_API int64_t used_memory(const std::string& root = "");

// Throws Error(kResourceExhausted) with the arithmetic and |remedy| when count x bytes_each is more than |available|
// (-1 = unknown: only an overflow is refused).
SPYRE_API void require_memory(std::string_view what, int64_t count, std::string_view unit, int64_t bytes_each,
                              std::string_view remedy, int64_t available);
// The same with available_memory().
SPYRE_API void require_memory(std::string_view what, int64_t count, std::string_view unit, int64_t bytes_each,
                              std::string_view remedy);

}  // namespace spyre::platform
