#include "platform/testing/conformance.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace spyre::platform::testing {
namespace {

std::string reason_for(const ConformanceTarget& target, const std::string& name) {
  for (const auto* list : {&target.unsupported, &target.expected_failures}) {
    for (const std::string& key : {name, std::string("*")}) {
      if (const auto found = list->find(key); found != list->end()) {
        return (list == &target.unsupported ? "unsupported: " : "expected failure: ") + found->second;
      }
    }
  }
  return {};
}

class CaseTest : public ::testing::Test {
 public:
  CaseTest(ConformanceTarget target, ConformanceCase test_case) : target_(std::move(target)), case_(test_case) {}

  void TestBody() override {
    const std::string reason = reason_for(target_, case_.name);
    const std::string failures = failures_of([this] {
      const std::unique_ptr<Platform> platform = target_.make();
      case_.run(*platform, target_.config);
    });
    switch (judge(failures.empty(), reason)) {
      case Verdict::kPassed:
        return;
      case Verdict::kSkipped:
        GTEST_SKIP() << reason;
      case Verdict::kFailed:
        FAIL() << failures;
      case Verdict::kStale:
        FAIL() << "passes, although it is listed as " << reason << "; strike the entry out";
    }
  }

 private:
  ConformanceTarget target_;
  ConformanceCase case_;
};

}  // namespace

Verdict judge(bool held, const std::string& reason) {
  if (reason.empty()) return held ? Verdict::kPassed : Verdict::kFailed;
  return held ? Verdict::kStale : Verdict::kSkipped;
}

std::string failures_of(const std::function<void()>& body) {
  std::string text;
  ::testing::TestPartResultArray results;
  {
    ::testing::ScopedFakeTestPartResultReporter reporter(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    try {
      body();
    } catch (const std::exception& error) {
      text = fmt::format("it threw: {}\n", error.what());
    }
  }
  for (int i = 0; i < results.size(); ++i) {
    const ::testing::TestPartResult& result = results.GetTestPartResult(i);
    if (!result.failed()) continue;
    text += fmt::format("{}:{}: {}\n", result.file_name() ? result.file_name() : "?", result.line_number(),
                        result.message());
  }
  return text;
}

void register_conformance(const ConformanceTarget& target) {
  for (const auto* list : {&target.unsupported, &target.expected_failures}) {
    for (const auto& [name, reason] : *list) {
      const auto known = conformance_cases();
      const bool found = name == "*" || std::any_of(known.begin(), known.end(),
                                                    [&key = name](const ConformanceCase& c) { return c.name == key; });
      if (!found) throw_error(ErrorCode::kInvalidArgument, "there is no conformance case '{}'", name);
    }
  }
  for (const ConformanceCase& test_case : conformance_cases()) {
    ::testing::RegisterTest(("Conformance_" + target.platform).c_str(), test_case.name, nullptr, nullptr, __FILE__,
                            __LINE__, [target, test_case]() -> CaseTest* { return new CaseTest(target, test_case); });
  }
}

}  // namespace spyre::platform::testing
