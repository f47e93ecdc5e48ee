#include "cli/chat_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace spyre::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Answers "<n>" to the n-th question; keeps what it was asked and what was noted.
struct Rig {
  ChatReply next;
  bool fails = false;
  std::vector<std::string> asked, notes;
  ChatSession session{[this](const ChatSession::Messages& messages) {
                        asked.push_back(messages.dump());
                        if (fails) throw_error(ErrorCode::kInvalidArgument, "too long");
                        ChatReply reply = next;
                        if (reply.text.empty() && !reply.stopped) reply.text = std::to_string(asked.size());
                        return reply;
                      },
                      [this](std::string_view line) { notes.emplace_back(line); }};
  std::string contents() const {
    std::string out;
    for (const auto& m : session.messages())
      out += m["role"].get<std::string>()[0] + (":" + m["content"].get<std::string>()) + " ";
    return out;
  }
};

TEST(ChatSession, KeepsTheHistory) {
  Rig rig;
  EXPECT_TRUE(rig.session.take("hello"));
  EXPECT_TRUE(rig.session.take("  spaced stays  "));
  EXPECT_EQ(rig.contents(), "u:hello a:1 u:  spaced stays   a:2 ");
  EXPECT_THAT(rig.asked[1], HasSubstr(R"({"role":"assistant","content":"1"},{"role":"user")"));
  EXPECT_TRUE(rig.session.take(" \t\r"));  // an empty line asks nothing
  EXPECT_EQ(rig.asked.size(), 2u);
}

TEST(ChatSession, Commands) {
  Rig rig;
  rig.session.take("/system  Be brief. ");
  rig.session.take("hi");
  EXPECT_EQ(rig.contents(), "s:Be brief. u:hi a:1 ");
  rig.session.take("/reset");
  EXPECT_EQ(rig.contents(), "s:Be brief. ");
  rig.session.take("/system");
  EXPECT_EQ(rig.contents(), "");
  rig.session.take("/help");
  EXPECT_THAT(rig.notes.back(), HasSubstr("/system TEXT"));
  EXPECT_TRUE(rig.session.take("/nope x"));
  EXPECT_THAT(rig.notes.back(), HasSubstr("/nope;"));
  rig.session.take("//path is said");
  EXPECT_EQ(rig.contents(), "u:/path is said a:2 ");
  EXPECT_FALSE(rig.session.take("/quit"));
  EXPECT_FALSE(rig.session.take(" /exit "));
}

TEST(ChatSession, ALineThatIsNotTextChangesNothing) {
  Rig rig;
  rig.session.take("hi");
  for (const char* line : {"caf\xe9", "\xff", "/system caf\xe9", "\xed\xa0\x80", "cut \xe2\x82"})
    EXPECT_THROW(rig.session.take(line), NotText) << line;
  EXPECT_EQ(rig.contents(), "u:hi a:1 ");
  EXPECT_TRUE(rig.session.take("caf\xc3\xa9"));
  EXPECT_EQ(rig.asked.size(), 2u);
}

TEST(ChatSession, AStoppedAnswerStaysAsFarAsItWasSaid) {
  Rig rig;
  rig.next = {.text = "Once upon", .stopped = true};
  rig.session.take("a story");
  EXPECT_EQ(rig.contents(), "u:a story a:Once upon ");
  rig.next = {.stopped = true};
  rig.session.take("more");  // stopped before the first word: nothing was asked
  EXPECT_EQ(rig.contents(), "u:a story a:Once upon ");
}

TEST(ChatSession, WhatCouldNotBeAnsweredIsTakenBack) {
  Rig rig;
  rig.session.take("hi");
  rig.fails = true;
  EXPECT_THROW(rig.session.take("a very long text"), Error);
  EXPECT_EQ(rig.contents(), "u:hi a:1 ");
  rig.fails = false;
  rig.next = {.text = "x", .cut = true};
  rig.session.take("again");
  EXPECT_THAT(rig.notes, ElementsAre(HasSubstr("cut at the limit")));
}

}  // namespace
}  // namespace spyre::cli
