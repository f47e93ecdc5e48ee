// The conformance suite on the built-in platforms, and a test of its own bookkeeping.
#include "platform/testing/conformance.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "platform/cpu_platform.h"
#include "platform/null_platform.h"

namespace spyre::platform::testing {
namespace {

const bool kCpu = (register_conformance({.platform = "cpu",
                                         .make = [] { return std::make_unique<CpuPlatform>(); },
                                         .config = {.block_size = 16},
                                         .unsupported = {},
                                         .expected_failures = {}}),
                   true);
const bool kCpuF16 = (register_conformance({.platform = "cpu_f16",
                                            .make = [] { return std::make_unique<CpuPlatform>(); },
                                            .config = {.dtype = DType::kF16},
                                            .unsupported = {},
                                            .expected_failures = {}}),
                      true);
const bool kCpuBlock5 = (register_conformance({.platform = "cpu_bf16_blocks_of_5",
                                               .make = [] { return std::make_unique<CpuPlatform>(); },
                                               .config = {.dtype = DType::kBF16, .block_size = 5},
                                               .unsupported = {},
                                               .expected_failures = {}}),
                         true);
const bool kNull = (register_conformance({.platform = "null",
                                          .make = [] { return std::make_unique<NullPlatform>(); },
                                          .config = {},
                                          .unsupported = {{"*", "a skeleton: every call is unimplemented"}},
                                          .expected_failures = {}}),
                    true);

TEST(Conformance, StaleExpectationIsAFailure) {
  EXPECT_EQ(judge(true, ""), Verdict::kPassed);
  EXPECT_EQ(judge(false, ""), Verdict::kFailed);
  EXPECT_EQ(judge(false, "no such unit"), Verdict::kSkipped);
  EXPECT_EQ(judge(true, "no such unit"), Verdict::kStale);
}

TEST(Conformance, CollectsExpectationsAndExceptions) {
  EXPECT_EQ(failures_of([] { EXPECT_EQ(1, 1); }), "");
  EXPECT_NE(failures_of([] { EXPECT_EQ(1, 2); }), "");
  EXPECT_NE(failures_of([] { throw_error(ErrorCode::kUnsupported, "no such unit"); }).find("no such unit"),
            std::string::npos);
}

TEST(Conformance, UnknownCaseIsRefused) {
  ConformanceTarget target{
      .platform = "x", .make = {}, .config = {}, .unsupported = {{"no_such_case", "why"}}, .expected_failures = {}};
  EXPECT_THROW(register_conformance(target), Error);
}

}  // namespace
}  // namespace spyre::platform::testing
