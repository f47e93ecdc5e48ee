#include "engine/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

namespace spyre::engine {
namespace {

struct Result {
  std::string text;
  std::optional<std::string> stop;
  bool operator==(const Result&) const = default;
};

Result read(const std::vector<std::string>& stops, const std::vector<std::string>& pieces, bool include = false) {
  StopStrings stop(stops, include);
  Result result;
  for (const std::string& piece : pieces) result.text += stop.push(piece, true);
  result.text += stop.flush();
  result.stop = stop.matched();
  return result;
}

std::ostream& operator<<(std::ostream& out, const Result& r) {
  return out << '"' << r.text << "\" stop " << r.stop.value_or("-");
}

TEST(StopStrings, CutTheText) {
  EXPECT_EQ(read({"END"}, {"abENDcd"}), (Result{"ab", "END"}));
  EXPECT_EQ(read({"END"}, {"ab", "E", "N", "D", "cd"}), (Result{"ab", "END"}));
  EXPECT_EQ(read({"END"}, {"abEN"}), (Result{"abEN", std::nullopt}));
  EXPECT_EQ(read({"END"}, {"abEN", "EENDx"}, true), (Result{"abENEEND", "END"}));
  EXPECT_EQ(read({}, {"ab", "cd"}), (Result{"abcd", std::nullopt}));
}

// The first that is complete; of those that end together, the longest.
TEST(StopStrings, OfSeveralTheFirstToBeComplete) {
  EXPECT_EQ(read({"abc", "b"}, {"xabc"}), (Result{"xa", "b"}));
  EXPECT_EQ(read({"b", "abc"}, {"xa", "bc"}), (Result{"xa", "b"}));
  EXPECT_EQ(read({"bc", "abc"}, {"xabc"}), (Result{"x", "abc"}));
  EXPECT_EQ(read({"abc", "bc"}, {"xab", "c"}), (Result{"x", "abc"}));
}

TEST(StopStrings, NothingIsHeldThatCannotBecomeOne) {
  StopStrings stop({"\n\nUser:"}, false);
  EXPECT_EQ(stop.push("one\n", true), "one");
  EXPECT_EQ(stop.push("two", true), "\ntwo");
  EXPECT_EQ(stop.push("\n\nUse", true), "");
  EXPECT_EQ(stop.push("d.\n", true), "\n\nUsed.");
  EXPECT_EQ(stop.flush(), "\n");
  StopStrings kept({"\n\nUser:"}, true);
  EXPECT_EQ(kept.push("a\n\n", true), "a\n\n");
  EXPECT_EQ(kept.push("User: b", true), "User:");
}

// An occurrence counts when it ends in an armed piece, wherever it begins.
TEST(StopStrings, BeforeTheFirstTokensNothingCounts) {
  StopStrings stop({"ab"}, false);
  EXPECT_EQ(stop.push("xabya", false), "xaby");
  EXPECT_EQ(stop.push("bz", true), "");
  EXPECT_EQ(stop.matched(), "ab");
}

TEST(StopStrings, HeldTextBeginsAtACharacter) {
  StopStrings stop({"é!"}, false);
  EXPECT_EQ(stop.push("caf\xC3\xA9", true), "caf");
  EXPECT_EQ(stop.push("s", true), "és");
}

// Any cut of any text gives what a reader of single characters finds.
TEST(StopStrings, TheCutOfTheTextDoesNotMatter) {
  std::mt19937 random(11);
  const auto word = [&](size_t most) {
    std::string text;
    for (size_t n = 1 + random() % most; n > 0; --n) text += static_cast<char>('a' + random() % 2);
    return text;
  };
  int matches = 0;
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::string> stops;
    for (size_t n = 1 + random() % 3; n > 0; --n) stops.push_back(word(5));
    const std::string text = word(20);
    std::vector<std::string> single, cut;
    for (char c : text) single.emplace_back(1, c);
    for (size_t at = 0; at < text.size();) {
      const size_t size = 1 + random() % 6;
      cut.push_back(text.substr(at, size));
      at += size;
    }
    const bool include = random() % 2 == 0;
    const Result expected = read(stops, single, include);
    matches += expected.stop.has_value();
    ASSERT_EQ(read(stops, cut, include), expected) << text;
    ASSERT_EQ(read(stops, {text}, include), expected) << text;
    ASSERT_TRUE(expected.stop || expected.text == text) << text;
  }
  EXPECT_GT(matches, 5000);
}

}  // namespace
}  // namespace spyre::engine
