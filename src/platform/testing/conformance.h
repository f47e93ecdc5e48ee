// The conformance suite: what every platform owes its host, written once and run on each.
//
// A test program registers it for a platform in a static initialiser:
//   const bool registered = (register_conformance({.platform = "mine", .make = ..., .config = ...}), true);
// which adds one GoogleTest per case, named Conformance_mine.<case>. What a platform cannot do stands in |unsupported|
// (permanent) or |expected_failures| (to be repaired), each with its reason; such a case is skipped with the reason as
// long as it fails, and fails as stale when it passes.
//
// The cases run on a tiny committed model (heads of 16, untied head, 257 ids, 512 positions).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "platform/platform.h"

namespace spyre::platform::testing {

struct ConformanceTarget {
  std::string platform;  // its name()
  std::function<std::unique_ptr<Platform>()> make;
  EngineConfig config;                                   // dtype, block size, ...; the model is filled in
  std::map<std::string, std::string> unsupported;        // case -> reason; "*": every case
  std::map<std::string, std::string> expected_failures;  // case -> reason
};

// A case reports by GoogleTest expectations and by throwing.
struct ConformanceCase {
  const char* name;
  void (*run)(const Platform& platform, const EngineConfig& config);
};

std::span<const ConformanceCase> conformance_cases();

// Throws Error(kInvalidArgument) when an expectation names a case that does not exist.
void register_conformance(const ConformanceTarget& target);

enum class Verdict { kPassed, kFailed, kSkipped, kStale };

// What a run of a case comes to, given whether its expectations held and the reason why they might not ("" for none).
Verdict judge(bool held, const std::string& reason);

// Runs |body| and says what went wrong in it, expectations and exceptions alike ("" when nothing did).
std::string failures_of(const std::function<void()>& body);

}  // namespace spyre::platform::testing
