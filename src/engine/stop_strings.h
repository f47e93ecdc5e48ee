// Stop strings in a text that comes in pieces.
//
// The text ends with the first occurrence that is complete, as if it came character by character (of several that end
// together the longest one), so the answer does not depend on how the text was cut. What could still become an
// occurrence is held: always as little as possible, and whole characters, because a stop string begins with one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spyre::engine {

class StopStrings {
 public:
  // No stop may be empty. |include|: the text keeps the stop string that ends it, so nothing need be held.
  StopStrings(std::vector<std::string> stops, bool include);

  // The text that |piece| makes certain. An occurrence that ends in a piece that is not |armed| does not count.
  std::string push(std::string_view piece, bool armed);
  // What was held, when the text ends for another reason.
  std::string flush();

  // Once set, the text is over and nothing more is given.
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  size_t possible_tail(std::string_view text) const;

  std::vector<std::string> stops_;
  bool include_;
  std::string tail_;  // the longest end of the text so far that begins a stop string; held unless |include_|
  std::optional<std::string> matched_;
};

}  // namespace spyre::engine
