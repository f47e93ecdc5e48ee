// What a step of decode may not do once the runner is warm: allocate, or call the system. Counted, not timed: the
// global operators of this test program count, and the kernel reports the first system call that a thread makes while
// it is watched (Linux' syscall user dispatch, where there is one).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "platform/testing/golden.h"
#include "platform/testing/runner_harness.h"
#include "plugins/spyre/platform.h"
#include "plugins/spyre/worker/model_runner.h"

#if defined(__linux__) && defined(__x86_64__)
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SPYRE_SANITIZED 1  // a sanitizer calls the system by itself
#endif

namespace {
std::atomic<int64_t> allocations{0};

void* counted(size_t bytes, size_t alignment = 0) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  bytes = bytes > 0 ? bytes : 1;
  void* memory = alignment > 0 ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
                               : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
__attribute__((noinline)) void release(void* memory) {
  std::free(memory);
}
}  // namespace

__attribute__((noinline)) void* operator new(size_t n) {
  return counted(n);
}
void* operator new[](size_t n) {
  return counted(n);
}
void* operator new(size_t n, std::align_val_t a) {
  return counted(n, static_cast<size_t>(a));
}
void* operator new[](size_t n, std::align_val_t a) {
  return counted(n, static_cast<size_t>(a));
}
// std::stable_sort asks for its buffer this way, and gives it back by the plain delete below.
void* operator new(size_t n, const std::nothrow_t&) noexcept {
  try {
    return counted(n);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* p) noexcept {
  release(p);
}
void operator delete[](void* p) noexcept {
  release(p);
}
void operator delete(void* p, size_t) noexcept {
  release(p);
}
void operator delete[](void* p, size_t) noexcept {
  release(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
  release(p);
}
void operator delete[](void* p, std::align_val_t) noexcept {
  release(p);
}
void operator delete(void* p, size_t, std::align_val_t) noexcept {
  release(p);
}
void operator delete[](void* p, size_t, std::align_val_t) noexcept {
  release(p);
}

namespace spyre::worker {
namespace {

using namespace platform::testing;  // NOLINT(google-build-using-namespace)
using platform::EngineConfig;
using plugin::SpyrePlatform;

// ---------------------------------------------------------------- system calls

#if defined(__linux__) && defined(__x86_64__) && !defined(SPYRE_SANITIZED)

constexpr int kSetDispatch = 59;  // PR_SET_SYSCALL_USER_DISPATCH
constexpr char kAllow = 0, kBlock = 1;
thread_local volatile char dispatch = kAllow;
thread_local volatile int first_call = -1;

// Makes the call that was stopped, and watches no longer: the return from here is a system call as well.
void on_stopped_call(int, siginfo_t* info, void* context) {
  dispatch = kAllow;
  first_call = info->si_syscall;
  greg_t* r = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const long result = syscall(info->si_syscall, r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10], r[REG_R8], r[REG_R9]);
  r[REG_RAX] = result < 0 ? -errno : result;
}

// The number of the first system call that |work| makes on this thread: -1 for none, nothing where it cannot be told.
template <typename Work>
std::optional<int> first_system_call(Work&& work) {
  struct sigaction action{}, before{};
  action.sa_sigaction = on_stopped_call;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSYS, &action, &before);
  first_call = -1;
  if (prctl(kSetDispatch, 1, 0, 0, &dispatch) != 0) return std::nullopt;
  dispatch = kBlock;
  work();
  dispatch = kAllow;
  prctl(kSetDispatch, 0, 0, 0, 0);
  sigaction(SIGSYS, &before, nullptr);
  return first_call;
}

#else

template <typename Work>
std::optional<int> first_system_call(Work&&) {
  return std::nullopt;
}

#endif

// ---------------------------------------------------------------- the steps

// Sequences that decode side by side, one token each per step, in caches of their own.
class Decode {
 public:
  Decode(RunnerHarness& harness, int64_t sequences, int64_t length) : runner_(harness.runner()) {
    const std::vector<int32_t> prompt(static_cast<size_t>(length), 7);
    for (int64_t s = 0; s < sequences; ++s) {
      const std::vector<int32_t> blocks = harness.blocks_for(length + kSteps + 1, next_block_);
      next_block_ += static_cast<int32_t>(blocks.size());
      harness.run({{.tokens = prompt, .start = 0, .blocks = blocks}});
      table_.insert(table_.end(), blocks.begin(), blocks.end());
      query_start_.push_back(static_cast<int32_t>(s));
      rows_.push_back(static_cast<int32_t>(s));
    }
    query_start_.push_back(static_cast<int32_t>(sequences));
    max_blocks_ = std::ssize(table_) / sequences;
    tokens_.assign(static_cast<size_t>(sequences), 7);
    positions_.assign(static_cast<size_t>(sequences), static_cast<int32_t>(length));
    slots_ = lengths_ = positions_;
    block_size_ = harness.spec().block_size;
  }

  static constexpr int kSteps = 8;

  void step() {
    for (size_t s = 0; s < tokens_.size(); ++s) {
      const int64_t position = positions_[s], block = table_[s * max_blocks_ + position / block_size_];
      slots_[s] = static_cast<int32_t>(block * block_size_ + position % block_size_);
      lengths_[s] = static_cast<int32_t>(position + 1);
    }
    runner_.forward({.token_ids = tokens_,
                     .positions = positions_,
                     .slots = slots_,
                     .attention = {.block_size = block_size_,
                                   .query_start = query_start_,
                                   .seq_lens = lengths_,
                                   .block_table = table_,
                                   .max_blocks = max_blocks_},
                     .logits_rows = rows_},
                    logits_);
    for (int32_t& position : positions_) ++position;
  }

 private:
  runner::ModelRunner& runner_;
  int64_t block_size_ = 0, max_blocks_ = 0;
  int32_t next_block_ = 1;
  std::vector<int32_t> tokens_, positions_, slots_, lengths_, query_start_, table_, rows_;
  runner::Logits logits_;
};

struct Case {
  DType dtype;
  int threads;
  int64_t sequences, length;
};

class TokenPath : public ::testing::TestWithParam<Case> {
 protected:
  TokenPath() {
    for (const auto& folder : golden_folders()) {
      if (folder.filename() != "llama_gqa64") continue;
      EngineConfig config{.model = load_golden(folder).model, .dtype = GetParam().dtype};
      config.max_model_len = 512;
      config.threads = GetParam().threads;
      harness_ = std::make_unique<RunnerHarness>(platform_, config, 1 + 8 * 4);
    }
    decode_ = std::make_unique<Decode>(*harness_, GetParam().sequences, GetParam().length);
    decode_->step();  // the first of its kind: buffers grow to their size
  }

  SpyrePlatform platform_;
  std::unique_ptr<RunnerHarness> harness_;
  std::unique_ptr<Decode> decode_;
};

TEST_P(TokenPath, AllocatesNothing) {
  const int64_t before = allocations.load();
  for (int i = 1; i < Decode::kSteps; ++i) decode_->step();
  EXPECT_EQ(allocations.load() - before, 0) << "in " << Decode::kSteps - 1 << " steps";
}

// Of a team of one; a larger one sleeps in the kernel when it is kept waiting, and is woken there.
class TokenPathOfOneThread : public TokenPath {};

TEST_P(TokenPathOfOneThread, CallsNoSystem) {
  const std::optional<int> call = first_system_call([this] {
    for (int i = 1; i < Decode::kSteps; ++i) decode_->step();
  });
  if (!call) GTEST_SKIP() << "this kernel does not tell";
  EXPECT_EQ(*call, -1) << "the number of the first system call, see <sys/syscall.h>";
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  return fmt::format("{}_{}threads_{}sequences_{}", to_string(info.param.dtype), info.param.threads,
                     info.param.sequences, info.param.length);
}

INSTANTIATE_TEST_SUITE_P(Steps, TokenPath,
                         ::testing::Values(Case{DType::kF16, 1, 1, 20}, Case{DType::kBF16, 1, 1, 300},
                                           Case{DType::kF16, 2, 1, 300}, Case{DType::kF16, 1, 6, 40},
                                           Case{DType::kBF16, 2, 6, 100}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Steps, TokenPathOfOneThread,
                         ::testing::Values(Case{DType::kF16, 1, 1, 20}, Case{DType::kBF16, 1, 1, 300},
                                           Case{DType::kF16, 1, 6, 40}),
                         name_of);

// The counters count.
TEST(TokenPathCounters, SeeWhatHappens) {
  const int64_t before = allocations.load();
  std::vector<int> grown(1000);
  EXPECT_GT(allocations.load(), before);
  EXPECT_EQ(grown.size(), 1000u);
#if defined(__linux__) && defined(__x86_64__) && !defined(SPYRE_SANITIZED)
  const auto none = first_system_call([] {});
  if (!none) GTEST_SKIP() << "this kernel does not tell of system calls";
  EXPECT_EQ(*none, -1);
  EXPECT_EQ(first_system_call([] { (void)getppid(); }), SYS_getppid);
#endif
}

}  // namespace
}  // namespace spyre::worker
