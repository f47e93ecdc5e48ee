#include "base/team.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/cpu.h"
#include "base/error.h"

#if defined(__SANITIZE_THREAD__)
#define SPYRE_UNDER_TSAN 1
#else
#define SPYRE_UNDER_TSAN 0
#endif

namespace spyre {
namespace {

using ::testing::HasSubstr;

constexpr auto kWaitLimit = std::chrono::seconds(30);  // for a machine that is busy with other things

template <typename F>
std::string error_of(ErrorCode code, F&& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

bool wait_until(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kWaitLimit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

class ThreadTeamSizes : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Team, ThreadTeamSizes, ::testing::Values(1, 2, 3, 4, 8));

TEST_P(ThreadTeamSizes, EveryMemberRunsOncePerRegion) {
  ThreadTeam team(GetParam());
  std::vector<int> runs(team.size(), 0);  // plain ints: run() itself must order them
  for (int region = 0; region < 300; ++region) {
    team.run([&](int index, int size) {
      ASSERT_EQ(size, GetParam());
      ++runs[index];
    });
  }
  EXPECT_THAT(runs, ::testing::Each(300));
  EXPECT_EQ(team.counters().regions, 300u);
}

// Each phase reads what every member wrote in the phase before: a barrier that lets one through early, or does not
// publish the writes, gives another sum (and a race under TSan).
TEST_P(ThreadTeamSizes, BarrierPublishesEveryMembersWrites) {
  ThreadTeam team(GetParam());
  const int n = team.size();
  constexpr int kPhases = 60;
  for (int region = 0; region < 20; ++region) {
    std::vector<int64_t> even(n, 1), odd(n, 0);
    team.run([&](int index, int) {
      for (int phase = 0; phase < kPhases; ++phase) {
        std::vector<int64_t>& from = phase % 2 == 0 ? even : odd;
        std::vector<int64_t>& to = phase % 2 == 0 ? odd : even;
        to[index] = std::accumulate(from.begin(), from.end(), int64_t{index}) % 1000003;
        team.barrier();
      }
    });
    std::vector<int64_t> expected(n, 1);
    for (int phase = 0; phase < kPhases; ++phase) {
      const int64_t sum = std::accumulate(expected.begin(), expected.end(), int64_t{0});
      for (int i = 0; i < n; ++i) expected[i] = (sum + i) % 1000003;
    }
    ASSERT_EQ(even, expected) << "region " << region;
  }
}

TEST_P(ThreadTeamSizes, AnyMembersErrorReachesTheCallerAndTheTeamGoesOn) {
  ThreadTeam team(GetParam());
  for (int round = 0; round < 40; ++round) {
    const int thrower = round % team.size();
    const int at_phase = round % 5;
    std::atomic<int> left_late{0};
    const std::string message = error_of(ErrorCode::kUnavailable, [&] {
      team.run([&](int index, int) {
        for (int phase = 0; phase < 5; ++phase) {
          if (index == thrower && phase == at_phase) throw_error(ErrorCode::kUnavailable, "member {} failed", index);
          team.barrier();
        }
        ++left_late;  // nobody passes the barrier that the thrower did not reach
      });
    });
    EXPECT_EQ(message, "member " + std::to_string(thrower) + " failed");
    EXPECT_EQ(left_late, 0);

    std::atomic<int> runs{0};
    team.run([&](int, int) {
      team.barrier();
      ++runs;
      team.barrier();
    });
    ASSERT_EQ(runs, team.size());
  }
}

TEST_P(ThreadTeamSizes, OfSeveralErrorsTheLowestMembersIsThrown) {
  ThreadTeam team(GetParam());
  const std::string message = error_of(ErrorCode::kInvalidArgument, [&] {
    team.run([&](int index, int) { throw_error(ErrorCode::kInvalidArgument, "member {}", index); });
  });
  EXPECT_EQ(message, "member 0");
}

TEST(ThreadTeam, ErrorsOfOtherTypesKeepTheirType) {
  ThreadTeam team(2);
  EXPECT_THROW(team.run([](int index, int) {
    if (index == 1) throw std::out_of_range("x");
  }),
               std::out_of_range);
}

TEST(ThreadTeam, SizesOutsideTheLimitsAreRefused) {
  for (int size : {-1, 0, ThreadTeam::kMaxSize + 1}) {
    EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { ThreadTeam team(size); }), HasSubstr(std::to_string(size)));
  }
}

TEST(ThreadTeam, RegionInsideRegionIsRefused) {
  ThreadTeam team(2), other(2);
  for (ThreadTeam* inner : {&team, &other}) {
    const std::string message =
        error_of(ErrorCode::kFailedPrecondition, [&] { team.run([&](int, int) { inner->run([](int, int) {}); }); });
    EXPECT_THAT(message, HasSubstr("inside a parallel region"));
  }
  std::atomic<int> runs{0};
  team.run([&](int, int) { ++runs; });
  EXPECT_EQ(runs, 2);
}

TEST(ThreadTeam, BarrierOutsideARegionIsOurBug) {
  ThreadTeam team(2);
  error_of(ErrorCode::kInternal, [&] { team.barrier(); });
}

TEST(ThreadTeam, MembersFlushDenormalsAndTheCallerGetsItsModeBack) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "no flush-to-zero mode on this architecture";
#endif
  const auto halve_smallest = [] {
    volatile float x = std::numeric_limits<float>::min();
    return x * 0.5f;
  };
  ThreadTeam team(3);
  ASSERT_NE(halve_smallest(), 0.0f);
  std::vector<float> results(3, 1.0f);
  team.run([&](int index, int) { results[index] = halve_smallest(); });
  EXPECT_THAT(results, ::testing::Each(0.0f));
  EXPECT_NE(halve_smallest(), 0.0f);
}

TEST(ThreadTeam, IdleWorkersSleepAndWakeAgain) {
  ThreadTeam team(3);
  for (uint64_t round = 1; round <= 3; ++round) {
    team.run([](int, int) {});
    ASSERT_TRUE(wait_until([&] { return team.counters().parks >= 2 * round; })) << team.counters().parks;
  }
}

TEST(ThreadTeam, WorkersThatWaitLongAtABarrierSleep) {
  ThreadTeam team(2);
  bool parked = false;
  std::atomic<bool> counted{false};
  team.run([&](int index, int) {
    if (index == 0) {
      const uint64_t before = team.counters().parks;
      counted = true;
      parked = wait_until([&] { return team.counters().parks > before; });
    }
    while (!counted) std::this_thread::yield();  // the worker is awake, and can only go to sleep at the barrier
    team.barrier();
  });
  EXPECT_TRUE(parked);
}

TEST(ThreadTeam, SpinsOnlyWithACpuForEachMember) {
  EXPECT_TRUE(ThreadTeam(usable_cpus()).spins());
  EXPECT_FALSE(ThreadTeam(usable_cpus() + 1).spins());
  EXPECT_FALSE(ThreadTeam(1, {.spin = std::chrono::microseconds(0)}).spins());
}

TEST(ThreadTeam, PinsOnRequestWhenTheMaskHasACpuForEach) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  const int cpus = CPU_COUNT(&mask);
  ThreadTeam off(std::min(cpus, 4), {.pin = TeamOptions::Pin::kOff});
  ThreadTeam on(std::min(cpus, 4), {.pin = TeamOptions::Pin::kOn});
  ThreadTeam too_large(cpus + 1, {.pin = TeamOptions::Pin::kOn});
  const auto bound = [](ThreadTeam& team) {
    std::vector<int> counts(team.size());
    team.run([&](int index, int) {
      cpu_set_t own;
      counts[index] = sched_getaffinity(0, sizeof(own), &own) == 0 ? CPU_COUNT(&own) : -1;
    });
    return std::vector<int>(counts.begin() + 1, counts.end());
  };
  EXPECT_THAT(bound(off), ::testing::Each(cpus));
  EXPECT_THAT(bound(on), ::testing::Each(1));
  EXPECT_THAT(bound(too_large), ::testing::Each(cpus));
  EXPECT_EQ(off.counters().pinned, 0);
  EXPECT_EQ(on.counters().pinned, on.size() - 1);
  EXPECT_EQ(too_large.counters().pinned, 0);
}

TEST(ThreadTeam, WorkersLeaveSignalsToOthers) {
  ThreadTeam team(2);
  std::vector<int> blocked(2);
  team.run([&](int index, int) {
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    blocked[index] = sigismember(&mask, SIGINT);
  });
  EXPECT_EQ(blocked, (std::vector<int>{0, 1}));
}

// A child has the team's memory and none of its threads: without the check it would wait for them for ever.
TEST(ThreadTeam, RefusedInAForkedChildUsableInTheParent) {
#if SPYRE_UNDER_TSAN
  GTEST_SKIP() << "TSan does not follow threads across fork()";
#endif
  auto team = std::make_unique<ThreadTeam>(3);
  team->run([](int, int) {});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    int code = 1;
    try {
      team->run([](int, int) {});
    } catch (const Error& error) {
      code = error.code() == ErrorCode::kFailedPrecondition ? 0 : 2;
    }
    team.reset();       // must not wait either
    ThreadTeam own(2);  // and a team of the child's own works
    own.run([&](int index, int) {
      if (index == 7) code = 3;
    });
    _exit(code);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  std::atomic<int> runs{0};
  team->run([&](int, int) { ++runs; });
  EXPECT_EQ(runs, 3);
}

TEST(TeamLease, ThreadsTakeTurns) {
  ThreadTeam team(2);
  int64_t total = 0;  // guarded by the lease
  std::vector<std::thread> users;
  for (int user = 0; user < 4; ++user) {
    users.emplace_back([&] {
      for (int step = 0; step < 50; ++step) {
        TeamLease lease(team);
        std::vector<int64_t> parts(lease->size());
        for (int region = 0; region < 3; ++region) {
          lease->run([&](int index, int) { parts[index] += index + 1; });
        }
        total += std::accumulate(parts.begin(), parts.end(), int64_t{0});
      }
    });
  }
  for (std::thread& user : users) user.join();
  EXPECT_EQ(total, 4 * 50 * 3 * (1 + 2));
}

TEST(TeamLease, WaitsForTheOneBefore) {
  ThreadTeam team(2);
  std::atomic<bool> asking{false}, got{false};
  auto first = std::make_unique<TeamLease>(team);
  std::thread second([&] {
    asking = true;
    TeamLease lease(team);
    got = true;
    lease->run([](int, int) {});
  });
  while (!asking) std::this_thread::yield();
  std::this_thread::sleep_for(
      std::chrono::milliseconds(20));  // time to get it wrongly; a correct lease never fails here
  EXPECT_FALSE(got);
  first.reset();
  second.join();
  EXPECT_TRUE(got);
}

TEST(TeamLease, RunWithoutTheLeaseThatAnotherHoldsIsRefused) {
  ThreadTeam team(2);
  TeamLease lease(team);
  std::thread([&] {
    EXPECT_THAT(error_of(ErrorCode::kFailedPrecondition, [&] { team.run([](int, int) {}); }), HasSubstr("TeamLease"));
  }).join();
  lease->run([](int, int) {});
}

TEST(TeamLease, TakenTwiceByOneThreadIsRefused) {
  ThreadTeam team(2);
  {
    TeamLease lease(team);
    error_of(ErrorCode::kFailedPrecondition, [&] { TeamLease again(team); });
    error_of(ErrorCode::kFailedPrecondition, [&] { lease->run([&](int, int) { TeamLease inside(team); }); });
  }
  TeamLease lease(team);
  lease->run([](int, int) {});
}

// Uneven members drive each other through every way of waiting: not at all, spinning, asleep, woken by an error. The
// seed is fixed; the interleaving is the machine's.
TEST(ThreadTeam, StressOfUnevenMembersAndErrors) {
  for (int size : {2, 3, 5}) {
    ThreadTeam team(size, {.spin = std::chrono::microseconds(5)});
    std::vector<int64_t> cells(size, 0);  // in phase p of a region, member i owns cell (i + p) % size
    int64_t expected = 0;
    const int regions = SPYRE_UNDER_TSAN ? 300 : 1500;
    for (int region = 0; region < regions; ++region) {
      const bool fails = region % 7 == 3;
      const int unlucky = region % size;
      bool failed = false;
      try {
        team.run([&](int index, int n) {
          uint32_t random = region * 2654435761u + index * 40503u + 1;
          for (int phase = 0; phase < 4; ++phase) {
            random = random * 1664525u + 1013904223u;
            if ((random >> 24) < 8) std::this_thread::sleep_for(std::chrono::microseconds(30));
            if (fails && phase == 2 && index == unlucky) throw std::runtime_error("planned");
            if (phase < 2 || !fails) cells[(index + phase) % n] += 1;
            team.barrier();
          }
        });
      } catch (const std::runtime_error&) {
        failed = true;
      }
      ASSERT_EQ(failed, fails) << "region " << region;
      expected += size * (fails ? 2 : 4);
      ASSERT_EQ(std::accumulate(cells.begin(), cells.end(), int64_t{0}), expected) << "region " << region;
    }
  }
}

TEST(SplitRange, CoversInOrderAtMultiplesAndEvenly) {
  for (int64_t total : {0, 1, 2, 15, 16, 17, 63, 64, 65, 576, 1000, 49152}) {
    for (int64_t granularity : {1, 2, 16, 64}) {
      for (int count : {1, 2, 3, 7, 8}) {
        int64_t next = 0, smallest = std::numeric_limits<int64_t>::max(), largest = 0;
        for (int index = 0; index < count; ++index) {
          const Range part = split_range(total, granularity, index, count);
          ASSERT_EQ(part.begin, next);
          ASSERT_LE(part.begin, part.end);
          ASSERT_TRUE(part.begin % granularity == 0 || part.begin == total);
          const int64_t granules = (part.size() + granularity - 1) / granularity;
          smallest = std::min(smallest, granules);
          largest = std::max(largest, granules);
          next = part.end;
        }
        ASSERT_EQ(next, total);
        ASSERT_LE(largest - smallest, 1) << total << " by " << granularity << " in " << count;
      }
    }
  }
}

TEST(SplitRange, HasNoOverflowAtTheLargestTotal) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(split_range(kMost, 64, 1, 2).end, kMost);
  EXPECT_EQ(split_range(kMost, kMost, 0, 2), (Range{0, kMost}));
  EXPECT_EQ(split_range(kMost, kMost, 1, 2), (Range{kMost, kMost}));
}

TEST(SplitRange, NonsenseIsOurBug) {
  error_of(ErrorCode::kInternal, [] { split_range(10, 0, 0, 1); });
  error_of(ErrorCode::kInternal, [] { split_range(10, 1, 2, 2); });
  error_of(ErrorCode::kInternal, [] { split_range(-1, 1, 0, 1); });
}

}  // namespace
}  // namespace spyre
