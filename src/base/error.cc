#include "base/error.h"

namespace spyre {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid argument";
    case ErrorCode::kNotFound: return "not found";
    case ErrorCode::kCorruptData: return "corrupt data";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kRuleViolation: return "rule violation";
    case ErrorCode::kFailedPrecondition: return "failed precondition";
    case ErrorCode::kResourceExhausted: return "resource exhausted";
    case ErrorCode::kUnavailable: return "unavailable";
    case ErrorCode::kCancelled: return "cancelled";
    case ErrorCode::kInternal: return "internal error";
  }
  return "unknown error";
}

void check_failed(const char* file, int line, const char* condition, const std::string& detail) {
  throw Error(ErrorCode::kInternal, fmt::format("internal error at {}:{}: {} does not hold{}{}", file, line, condition,
                                                detail.empty() ? "" : ": ", detail));
}

}  // namespace spyre
