// Errors: one exception type whose code is chosen by what the caller should do next.
//
// A message names the thing and carries the offending numbers; it is one line, fit to be shown to a user. Anything a
// user controls (a request, a file, a flag) ends in one of these, never in an assertion. SPYRE_CHECK is for our own
// bugs only: it throws kInternal with file and line, so that a server can fail one request and live.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>

#include "base/export.h"

namespace spyre {

enum class ErrorCode {
  kInvalidArgument,     // the caller's words are wrong: change the request, flag or config (HTTP 400, exit 1)
  kNotFound,            // a named file, tensor, model or plugin does not exist: check the name
  kCorruptData,         // a file lies about itself: get a good copy; retrying does not help
  kUnsupported,         // well-formed, but not built here: use another model, dtype or platform
  kRuleViolation,       // the card cannot run this program: the message names the rule and the remedy
  kFailedPrecondition,  // call order or state is wrong: fix the state first
  kResourceExhausted,   // memory, blocks or a limit: ask for less or give more
  kUnavailable,         // temporary: retry later
  kCancelled,           // the user asked to stop
  kInternal,            // our bug
};

SPYRE_API std::string_view to_string(ErrorCode code);

class SPYRE_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// throw_error(ErrorCode::kCorruptData, "tensor '{}': offset {} + size {} is past the end {}", name, offset, size, end);
template <typename... Args>
[[noreturn]] void throw_error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] SPYRE_API void check_failed(const char* file, int line, const char* condition, const std::string& detail);

}  // namespace spyre

// SPYRE_CHECK(condition) or SPYRE_CHECK(condition, "format {}", value): an invariant of our own code.
#define SPYRE_CHECK(condition, ...)                                                             \
  do {                                                                                          \
    if (!(condition)) [[unlikely]]                                                              \
      ::spyre::check_failed(__FILE__, __LINE__, #condition, fmt::format("" __VA_ARGS__));       \
  } while (false)
