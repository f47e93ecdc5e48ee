// What a client is told when a request fails: a status, and a body in the shape of the OpenAI API and of vLLM,
// {"error": {"message", "type", "param", "code"}}, with the status as code.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/error.h"
#include "server/exchange.h"

namespace spyre::server {

class ApiError : public std::runtime_error {
 public:
  // |param| names the field that is wrong.
  ApiError(int status, const std::string& message, std::optional<std::string> param = {})
      : std::runtime_error(message), status_(status), param_(std::move(param)) {}
  int status() const { return status_; }
  const std::optional<std::string>& param() const { return param_; }

 private:
  int status_;
  std::optional<std::string> param_;
};

// A field of the request is wrong.
template <typename... Args>
[[noreturn]] void bad_field(std::string_view field, fmt::format_string<Args...> format, Args&&... args) {
  throw ApiError(400, fmt::format("{}: {}", field, fmt::format(format, std::forward<Args>(args)...)),
                 std::string(field));
}

// An Error from the rooms below, seen from outside: what the caller can mend is 400, a limit of the moment 429 or 503,
// the rest 500.
ApiError to_api_error(const Error& error);

std::string error_json(const ApiError& error);
HttpResponse error_response(const ApiError& error);

// |text| for a message: on one line, valid UTF-8, cut after |max_bytes|.
std::string quotable(std::string_view text, size_t max_bytes = 100);

}  // namespace spyre::server
