#include "base/log.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace spyre {
namespace {

// The logger reads its environment once per process, so each case is a process of its own.
[[noreturn]] void exit_with_level(const char* name) {
  setenv("SPYRE_LOG_LEVEL", name, 1);
  std::exit(static_cast<int>(log().level()));
}

TEST(LogDeathTest, LevelComesFromTheEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_with_level("debug"), ::testing::ExitedWithCode(spdlog::level::debug), "");
  EXPECT_EXIT(exit_with_level("off"), ::testing::ExitedWithCode(spdlog::level::off), "");
}

// Not `off`: a slip of the finger must not silence errors.
TEST(LogDeathTest, AnUnknownLevelIsNamedAndMeansWarn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_with_level("verbose"), ::testing::ExitedWithCode(spdlog::level::warn), "'verbose' is none of trace");
}

}  // namespace
}  // namespace spyre
