#include "server/api_error.h"

#include <nlohmann/json.hpp>

namespace spyre::server {

namespace {

std::string_view type_of(int status) {
  switch (status) {
    case 400:
      return "BadRequestError";
    case 401:
      return "AuthenticationError";
    case 404:
      return "NotFoundError";
    case 405:
      return "MethodNotAllowedError";
    case 408:
      return "TimeoutError";
    case 413:
      return "RequestTooLargeError";
    case 429:
      return "RateLimitError";
    case 431:
      return "RequestTooLargeError";
    case 503:
      return "ServiceUnavailableError";
    default:
      return "InternalServerError";
  }
}

}  // namespace

ApiError to_api_error(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
    case ErrorCode::kNotFound:
    case ErrorCode::kRuleViolation:
      return ApiError(400, error.what());
    case ErrorCode::kResourceExhausted:
      return ApiError(429, error.what());
    case ErrorCode::kUnavailable:
    case ErrorCode::kFailedPrecondition:
    case ErrorCode::kCancelled:
      return ApiError(503, error.what());
    default:
      return ApiError(500, error.what());
  }
}

std::string error_json(const ApiError& error) {
  nlohmann::ordered_json body;
  body["message"] = error.what();
  body["type"] = type_of(error.status());
  body["param"] = error.param() ? nlohmann::ordered_json(*error.param()) : nlohmann::ordered_json(nullptr);
  body["code"] = error.status();
  nlohmann::ordered_json out;
  out["error"] = std::move(body);
  return out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response{.status = error.status(), .body = error_json(error)};
  if (error.status() == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.status() == 429 || error.status() == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

std::string quotable(std::string_view text, size_t max_bytes) {
  std::string out;
  for (const char c : text.substr(0, max_bytes)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  if (text.size() > max_bytes) {
    while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xc0) == 0x80) out.pop_back();
    if (!out.empty() && static_cast<unsigned char>(out.back()) >= 0xc0) out.pop_back();
    out += "...";
  }
  return out;
}

}  // namespace spyre::server
