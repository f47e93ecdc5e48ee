#include "engine/stop_strings.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace spyre::engine {

StopStrings::StopStrings(std::vector<std::string> stops, bool include) : stops_(std::move(stops)), include_(include) {
  for (const std::string& stop : stops_) SPYRE_CHECK(!stop.empty());
}

// Bytes at the end of |text| that begin a stop string without completing it.
size_t StopStrings::possible_tail(std::string_view text) const {
  size_t longest = 0;
  for (const std::string_view stop : stops_) {
    for (size_t size = std::min(stop.size() - 1, text.size()); size > longest; --size) {
      if (text.ends_with(stop.substr(0, size))) longest = size;
    }
  }
  return longest;
}

std::string StopStrings::push(std::string_view piece, bool armed) {
  if (matched_) return "";
  if (stops_.empty()) return std::string(piece);
  std::string text = std::exchange(tail_, "");
  const size_t before = text.size();
  text += piece;
  const size_t shown = include_ ? before : 0;  // of |text|, already given

  size_t end = std::string::npos, begin = 0;
  for (const std::string& stop : stops_) {
    if (!armed) break;
    // Only an occurrence that ends in the new piece is new.
    const size_t from = before + 1 > stop.size() ? before + 1 - stop.size() : 0;
    const size_t at = text.find(stop, from);
    if (at == std::string::npos) continue;
    const size_t stop_end = at + stop.size();
    if (end != std::string::npos && (stop_end > end || (stop_end == end && at >= begin))) continue;
    end = stop_end;
    begin = at;
    matched_ = stop;
  }
  if (matched_) return text.substr(shown, (include_ ? end : begin) - shown);

  const size_t tail = possible_tail(text);
  tail_ = text.substr(text.size() - tail);
  return text.substr(shown, text.size() - shown - (include_ ? 0 : tail));
}

std::string StopStrings::flush() {
  std::string rest = std::exchange(tail_, "");
  return include_ || matched_ ? "" : rest;
}

}  // namespace spyre::engine
