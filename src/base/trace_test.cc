#include "base/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace spyre {
namespace {

using ::testing::HasSubstr;

TEST(Trace, SpansBecomeEventsOfTheirTrack) {
  TraceRecorder trace;
  trace.add(TraceProcess::kHost, "steps", "step", 1000, 3500, {{"tokens", 7}});
  trace.add(TraceProcess::kCard, "steps", "step", 0, 250);
  trace.add(TraceProcess::kHost, "steps", "ste\"p\n", 4000, 4001);
  const std::string json = trace.json();
  // Times are microseconds; a track of the card is not the host's of that name.
  EXPECT_THAT(json, HasSubstr(R"("ph":"X","pid":1,"tid":1,"ts":1.000,"dur":2.500,"name":"step","args":{"tokens":7}})"));
  EXPECT_THAT(json, HasSubstr(R"("ph":"X","pid":2,"tid":2,"ts":0.000,"dur":0.250,"name":"step"})"));
  EXPECT_THAT(json, HasSubstr(R"("name":"ste\"p\u000a"})"));
  EXPECT_THAT(json, HasSubstr(R"("spans_lost":0)"));
}

TEST(Trace, IsBounded) {
  TraceRecorder trace(2);
  for (int i = 0; i < 5; ++i) trace.add(TraceProcess::kHost, "t", "s", i, i + 1);
  EXPECT_EQ(trace.size(), 2u);
  EXPECT_EQ(trace.lost(), 3u);
  EXPECT_THAT(trace.json(), HasSubstr(R"("spans_lost":3)"));
}

TEST(Trace, HostSpansLastAsLongAsTheirObject) {
  {
    const HostSpan nothing(nullptr, "t", "s");
  }
  TraceRecorder trace;
  const double before = trace.now();
  {
    const HostSpan span(&trace, "t", "s");
    EXPECT_EQ(trace.size(), 0u);
  }
  EXPECT_EQ(trace.size(), 1u);
  EXPECT_GE(trace.now(), before);
}

TEST(Trace, ThreadsMayAddAtOnce) {
  TraceRecorder trace;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&trace, t] {
      for (int i = 0; i < 500; ++i) trace.add(TraceProcess::kHost, std::to_string(t), "s", i, i + 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(trace.size(), 2000u);
}

}  // namespace
}  // namespace spyre
