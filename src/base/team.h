// ThreadTeam: the threads that compute a step together. N - 1 persistent workers and the caller run one function at
// the same time (a region), meet at barriers inside it, and sleep between steps.
//
//   ThreadTeam team(usable_cpus());
//   TeamLease lease(team);
//   lease->run([&](int index, int count) {
//     Range rows = split_range(total_rows, 1, index, count);
//     first_part(rows);
//     team.barrier();                     // everything written before it is seen by every member after it
//     second_part(rows);
//   });
//
// Owner: one team per process, made by the front and handed down. Models and platforms that share it take a TeamLease
// for a step; a region belongs to the thread that called run(). All members of a region run with denormals flushed
// (docs/numerics.md §1).
//
// Waiting, in barriers and for the next region, spins for TeamOptions::spin and then sleeps in the kernel: a barrier
// costs a fraction of a microsecond while a step is going on, and an idle team costs nothing. A team with more threads
// than usable CPUs never spins: it would keep the very thread it waits for from running. run() and barrier() take no
// lock and allocate nothing.
//
// Errors: what a member throws leaves run() on the caller (of several, the one of the lowest index); the other members
// leave at their next barrier, and the team can be used again. Members must therefore be exception-safe at barriers,
// and every member must pass the same barriers. After fork() the child has no workers: run() there is refused.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "base/export.h"

namespace spyre {

struct TeamOptions {
  enum class Pin {
    kAuto,  // as kOn when the team has as many threads as the affinity mask has CPUs. A smaller team is left to the
            // scheduler: several processes that all pin to the first CPUs of one mask would share those and leave the
            // rest idle.
    kOn,    // worker i to the i-th CPU of the mask, when it has that many; the caller is never pinned
    kOff,
  };
  Pin pin = Pin::kAuto;
  std::chrono::microseconds spin{80};  // about two wake-ups (20-45 us): beyond that, spinning costs more than it saves
};

class SPYRE_API ThreadTeam {
 public:
  static constexpr int kMaxSize = 1024;

  // REQUIRES: 1 <= size <= kMaxSize (kInvalidArgument). kResourceExhausted when the system gives no more threads.
  explicit ThreadTeam(int size, const TeamOptions& options = {});
  ~ThreadTeam();  // REQUIRES: no region is running
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const;
  bool spins() const;  // whether members spin before they sleep

  // Calls fn(index, size()) on every member, index 0 on the caller, and returns when all have returned. Throws
  // kFailedPrecondition when called inside a region, while another thread runs one or holds the lease, or after fork().
  template <typename F>
  void run(F&& fn) {
    using Function = std::remove_reference_t<F>;
    run_region([](void* context, int index, int size) { (*static_cast<Function*>(context))(index, size); },
               const_cast<void*>(static_cast<const void*>(std::addressof(fn))));
  }

  // REQUIRES: called by a member inside a region. Leaves by an exception of no public type when another member threw:
  // a member that catches (...) must throw it on.
  void barrier();

  // Counted since the team was made. `parks` counts the times that a member went to sleep in the kernel.
  struct Counters {
    uint64_t regions = 0;
    uint64_t parks = 0;
    int pinned = 0;  // workers bound to one CPU
  };
  Counters counters() const;

 private:
  friend class TeamLease;
  struct State;
  using Entry = void (*)(void* context, int index, int size);

  void run_region(Entry entry, void* context);
  void start_workers(const TeamOptions& options);
  void stop_workers();

  std::unique_ptr<State> state_;
};

// The right to run regions, for as long as the object lives. Waits for another thread's lease to end; throws
// kFailedPrecondition when this thread has one already, or is inside a region: it would wait for itself.
class SPYRE_API TeamLease {
 public:
  explicit TeamLease(ThreadTeam& team);
  ~TeamLease();
  TeamLease(const TeamLease&) = delete;
  TeamLease& operator=(const TeamLease&) = delete;

  ThreadTeam& operator*() const { return team_; }
  ThreadTeam* operator->() const { return &team_; }

 private:
  ThreadTeam& team_;
};

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// Part `index` of [0, total) cut into `count` parts at multiples of `granularity`, in ascending order: parts differ by
// at most one granule, the larger ones first. The last granule may be short; a part may be empty. The same arguments
// always give the same cut.
// REQUIRES: total >= 0, granularity >= 1, 0 <= index < count.
SPYRE_API Range split_range(int64_t total, int64_t granularity, int index, int count);

}  // namespace spyre
