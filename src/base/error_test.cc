#include "base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace spyre {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Error, CarriesItsCodeAndFormattedMessage) {
  try {
    throw_error(ErrorCode::kCorruptData, "tensor '{}': {} is past the end {}", "w", 12, 8);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    EXPECT_STREQ(error.what(), "tensor 'w': 12 is past the end 8");
  }
}

TEST(Error, EveryCodeHasItsOwnName) {
  std::set<std::string_view> names;
  const int last = static_cast<int>(ErrorCode::kInternal);
  for (int code = 0; code <= last; ++code) names.insert(to_string(static_cast<ErrorCode>(code)));
  EXPECT_EQ(names.size(), static_cast<size_t>(last + 1));
  EXPECT_EQ(names.count("unknown error"), 0u);
}

TEST(Error, CheckPassesInSilenceAndEvaluatesOnce) {
  int calls = 0;
  SPYRE_CHECK(++calls == 1);
  EXPECT_EQ(calls, 1);
}

TEST(Error, FailedCheckIsAnInternalErrorThatNamesThePlaceAndTheCondition) {
  const int rows = 3;
  try {
    SPYRE_CHECK(rows == 4, "rows {}", rows);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("error_test.cc:"), HasSubstr("rows == 4"), HasSubstr("rows 3")));
  }
}

TEST(Error, IsAStandardException) {
  EXPECT_THROW(throw_error(ErrorCode::kNotFound, "no file '{}'", "x"), std::runtime_error);
}

}  // namespace
}  // namespace spyre
