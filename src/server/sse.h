// Server-sent events.
#pragma once

#include <string>
#include <string_view>

namespace spyre::server {

// REQUIRES: no line break in |data| (JSON has none).
inline std::string sse_event(std::string_view data) {
  std::string out = "data: ";
  out += data;
  return out += "\n\n";
}

inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

}  // namespace spyre::server
