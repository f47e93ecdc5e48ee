#include "base/team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/cpu.h"
#include "base/error.h"
#include "base/topology.h"

namespace spyre {
namespace {

constexpr size_t kCacheLine = 64;
constexpr int kSpinsPerClockRead = 64;  // 1.6-3 us of pauses between two looks at the clock

inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#elif defined(__powerpc64__)
  asm volatile("or 27,27,27" ::: "memory");
#endif
}

long futex(std::atomic<uint32_t>& word, int operation, uint32_t value) {
  static_assert(sizeof(word) == sizeof(uint32_t));
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, nullptr, nullptr, 0);
}

// A number that only grows (and wraps), and those who wait for it to change.
//
// No wake-up is lost: a waiter announces itself (parked_) and then looks at value_ once more; a waker changes value_
// and then looks at parked_. All four are sequentially consistent, so one of the two sees the other. Between that look
// and the sleep, the kernel compares value_ again.
class alignas(kCacheLine) WaitWord {
 public:
  uint32_t load() const { return value_.load(std::memory_order_acquire); }

  void advance() {
    value_.fetch_add(1, std::memory_order_seq_cst);
    if (parked_.load(std::memory_order_seq_cst) != 0) futex(value_, FUTEX_WAKE_PRIVATE, INT32_MAX);
  }

  void wait_while(uint32_t old, std::chrono::nanoseconds spin, std::atomic<uint64_t>& parks) {
    if (spin.count() > 0 && spin_while(old, spin)) return;
    while (load() == old) {
      parked_.fetch_add(1, std::memory_order_seq_cst);
      if (value_.load(std::memory_order_seq_cst) == old) {
        parks.fetch_add(1, std::memory_order_relaxed);
        futex(value_, FUTEX_WAIT_PRIVATE, old);  // may return early, hence the loop
      }
      parked_.fetch_sub(1, std::memory_order_relaxed);
    }
  }

 private:
  bool spin_while(uint32_t old, std::chrono::nanoseconds spin) const {
    std::chrono::steady_clock::time_point end{};
    while (true) {
      for (int i = 0; i < kSpinsPerClockRead; ++i) {
        if (load() != old) return true;
        cpu_relax();
      }
      const auto now = std::chrono::steady_clock::now();
      if (end == std::chrono::steady_clock::time_point{}) end = now + spin;
      if (now >= end) return false;
    }
  }

  std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> parked_{0};
};

// What barrier() throws in members whose region is lost. No std::exception: `catch (const std::exception&)` in a
// kernel's caller must not take it for a failure of its own.
struct RegionAborted {};

// The team whose region this thread is in.
thread_local const ThreadTeam* current_team = nullptr;

// How many forks lie between the first team of the first process and this process.
std::atomic<uint32_t> fork_generation{0};

void watch_forks() {
  static std::once_flag once;
  std::call_once(
      once, [] { pthread_atfork(nullptr, nullptr, [] { fork_generation.fetch_add(1, std::memory_order_relaxed); }); });
}

std::vector<int> affinity_cpus() {
  std::vector<int> cpus;
  // A fixed cpu_set_t holds 1024 CPUs; on a larger machine the call fails and nothing is pinned.
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
  }
  return cpus;
}

bool pin_this_thread(int cpu) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(cpu, &mask);
  return pthread_setaffinity_np(pthread_self(), sizeof(mask), &mask) == 0;
}

// Threads started while this object lives take no signals, so that Ctrl-C reaches the thread that waits for it. The
// signals of a thread's own faults stay: blocked, they would kill the process without a word; profilers keep theirs.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    for (int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGPROF}) sigdelset(&all, own);
    pthread_sigmask(SIG_BLOCK, &all, &saved_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t saved_;
};

}  // namespace

// Who writes what: the caller writes the region's fields between regions; `epoch` publishes them to the workers.
// The workers' results return through `pending` and `done`.
struct ThreadTeam::State {
  explicit State(int team_size, const TeamOptions& options)
      : size(team_size),
        spin(team_size > usable_cpus() ? std::chrono::nanoseconds(0) : std::chrono::nanoseconds(options.spin)),
        errors(team_size),
        forks(fork_generation.load(std::memory_order_relaxed)) {}

  bool forked() const { return forks != fork_generation.load(std::memory_order_relaxed); }

  void run_member(const ThreadTeam* team, int index) {
    current_team = team;
    try {
      const ScopedFlushDenormals flush;
      entry(context, index, size);
    } catch (const RegionAborted&) {
      // another member's error is on its way to the caller
    } catch (...) {
      errors[index] = std::current_exception();
      aborted.store(true, std::memory_order_release);
      barrier_generation.advance();  // whoever waits there, or comes there, leaves
    }
    current_team = nullptr;
  }

  void worker_loop(const ThreadTeam* team, int index) {
    uint32_t seen = 0;
    while (true) {
      epoch.wait_while(seen, spin, parks);
      ++seen;  // regions are run one at a time: the epoch is exactly one further
      if (stopping) return;
      run_member(team, index);
      if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) done.advance();
    }
  }

  const int size;
  const std::chrono::nanoseconds spin;

  // The region: written by the caller alone, while no member runs.
  Entry entry = nullptr;
  void* context = nullptr;
  bool stopping = false;
  std::vector<std::exception_ptr> errors;  // [member], written by that member
  std::atomic<bool> aborted{false};

  WaitWord epoch;                                   // advances when a region starts
  WaitWord done;                                    // advances when its last worker has returned
  WaitWord barrier_generation;                      // advances when the last member arrives, or one has thrown
  alignas(kCacheLine) std::atomic<int> arrived{0};  // at the barrier
  alignas(kCacheLine) std::atomic<int> pending{0};  // workers still in the region

  alignas(kCacheLine) std::atomic<bool> busy{false};
  std::atomic<std::thread::id> lease_owner{};
  std::mutex lease;
  std::atomic<uint64_t> regions{0};
  std::atomic<uint64_t> parks{0};
  std::atomic<int> pinned{0};
  const uint32_t forks;
  std::vector<std::thread> workers;
};

ThreadTeam::ThreadTeam(int size, const TeamOptions& options) {
  if (size < 1 || size > kMaxSize) {
    throw_error(ErrorCode::kInvalidArgument, "a thread team of {} threads: 1 to {} are allowed", size, kMaxSize);
  }
  watch_forks();
  state_ = std::make_unique<State>(size, options);
  start_workers(options);
}

ThreadTeam::~ThreadTeam() {
  stop_workers();
}

void ThreadTeam::start_workers(const TeamOptions& options) {
  State& s = *state_;
  if (s.size == 1) return;
  std::vector<int> cpus;
  if (options.pin != TeamOptions::Pin::kOff) {
    cpus = Topology::read().in_node_order(affinity_cpus());
  }
  const bool fits = options.pin == TeamOptions::Pin::kOn ? s.size <= static_cast<int>(cpus.size())
                                                         : s.size == static_cast<int>(cpus.size());
  const BlockSignals block;
  s.workers.reserve(s.size - 1);
  for (int index = 1; index < s.size; ++index) {
    const int cpu = fits ? cpus[index] : -1;
    try {
      s.workers.emplace_back([this, &s, index, cpu] {
        pthread_setname_np(pthread_self(), ("spyre-" + std::to_string(index)).c_str());
        if (cpu >= 0 && pin_this_thread(cpu)) s.pinned.fetch_add(1, std::memory_order_relaxed);
        s.worker_loop(this, index);
      });
    } catch (const std::system_error& error) {
      stop_workers();
      throw_error(ErrorCode::kResourceExhausted, "thread {} of {} could not be started: {}", index, s.size,
                  error.code().message());
    }
  }
}

void ThreadTeam::stop_workers() {
  State& s = *state_;
  if (s.forked()) {  // the threads are in the parent; their handles here name nothing
    for (std::thread& worker : s.workers) worker.detach();
    return;
  }
  s.stopping = true;
  s.epoch.advance();
  for (std::thread& worker : s.workers) worker.join();
}

int ThreadTeam::size() const {
  return state_->size;
}

bool ThreadTeam::spins() const {
  return state_->spin.count() > 0;
}

ThreadTeam::Counters ThreadTeam::counters() const {
  return {.regions = state_->regions.load(std::memory_order_relaxed),
          .parks = state_->parks.load(std::memory_order_relaxed),
          .pinned = state_->pinned.load(std::memory_order_relaxed)};
}

void ThreadTeam::run_region(Entry entry, void* context) {
  State& s = *state_;
  if (current_team != nullptr) {
    throw_error(ErrorCode::kFailedPrecondition, "a parallel region was started inside a parallel region");
  }
  if (s.forked()) {
    throw_error(ErrorCode::kFailedPrecondition,
                "the thread team was made before fork() and has no threads in this process: make another one here");
  }
  const std::thread::id owner = s.lease_owner.load(std::memory_order_relaxed);
  if ((owner != std::thread::id{} && owner != std::this_thread::get_id()) ||
      s.busy.exchange(true, std::memory_order_acquire)) {
    throw_error(ErrorCode::kFailedPrecondition, "the thread team is in use by another thread: take a TeamLease first");
  }
  s.regions.fetch_add(1, std::memory_order_relaxed);
  s.entry = entry;
  s.context = context;
  s.arrived.store(0, std::memory_order_relaxed);  // an aborted region leaves a count behind
  s.aborted.store(false, std::memory_order_relaxed);
  s.pending.store(s.size - 1, std::memory_order_relaxed);
  if (s.size > 1) {
    const uint32_t before = s.done.load();
    s.epoch.advance();
    s.run_member(this, 0);
    s.done.wait_while(before, s.spin, s.parks);
  } else {
    s.run_member(this, 0);
  }
  std::exception_ptr first;
  if (s.aborted.load(std::memory_order_acquire)) {
    for (std::exception_ptr& error : s.errors) {
      std::exception_ptr taken = std::exchange(error, nullptr);
      if (first == nullptr) first = std::move(taken);
    }
  }
  s.busy.store(false, std::memory_order_release);
  if (first != nullptr) std::rethrow_exception(std::move(first));
}

void ThreadTeam::barrier() {
  State& s = *state_;
  SPYRE_CHECK(current_team == this, "barrier() outside a region of this team");
  if (s.size == 1) return;
  // The generation is read before `aborted`: an abort advances it afterwards, so either we see the abort here or the
  // wait below ends.
  const uint32_t generation = s.barrier_generation.load();
  if (s.aborted.load(std::memory_order_acquire)) throw RegionAborted{};
  if (s.arrived.fetch_add(1, std::memory_order_acq_rel) == s.size - 1) {
    s.arrived.store(0, std::memory_order_relaxed);  // published by the advance: nobody arrives again before it
    s.barrier_generation.advance();
  } else {
    s.barrier_generation.wait_while(generation, s.spin, s.parks);
  }
  if (s.aborted.load(std::memory_order_acquire)) throw RegionAborted{};
}

TeamLease::TeamLease(ThreadTeam& team) : team_(team) {
  ThreadTeam::State& s = *team.state_;
  if (current_team != nullptr || s.lease_owner.load(std::memory_order_relaxed) == std::this_thread::get_id()) {
    throw_error(ErrorCode::kFailedPrecondition, "this thread holds the thread team already");
  }
  s.lease.lock();
  s.lease_owner.store(std::this_thread::get_id(), std::memory_order_relaxed);
}

TeamLease::~TeamLease() {
  ThreadTeam::State& s = *team_.state_;
  s.lease_owner.store(std::thread::id{}, std::memory_order_relaxed);
  s.lease.unlock();
}

Range split_range(int64_t total, int64_t granularity, int index, int count) {
  SPYRE_CHECK(total >= 0 && granularity >= 1 && index >= 0 && index < count, "total {} granularity {} part {} of {}",
              total, granularity, index, count);
  const int64_t granules = total / granularity + (total % granularity != 0);
  const int64_t each = granules / count, extra = granules % count;
  const int64_t first = each * index + std::min<int64_t>(index, extra);
  const int64_t last = first + each + (index < extra);
  // granules * granularity may pass the largest int64_t, (granules - 1) * granularity cannot
  const auto position = [&](int64_t granule) { return granule == granules ? total : granule * granularity; };
  return {position(first), position(last)};
}

}  // namespace spyre
