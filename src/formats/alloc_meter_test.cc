// Replaces the global operators of this test program by counting ones.
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "formats/hostile_test_util.h"

namespace {
std::atomic<size_t> live{0}, peak{0}, base{0};

void* counted(void* memory) {
  if (!memory) throw std::bad_alloc();
  const size_t now = live += malloc_usable_size(memory);
  size_t before = peak;
  while (before < now && !peak.compare_exchange_weak(before, now)) {
  }
  return memory;
}
__attribute__((noinline)) void release(void* memory) {
  if (memory) live -= malloc_usable_size(memory);
  std::free(memory);
}
}  // namespace

__attribute__((noinline)) void* operator new(size_t n) {
  return counted(std::malloc(n ? n : 1));
}
void* operator new[](size_t n) {
  return counted(std::malloc(n ? n : 1));
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

namespace spyre::formats::testing {

void AllocMeter::reset() {
  ::peak = ::base = ::live.load();
}
size_t AllocMeter::peak() {
  return ::peak - ::base;
}

namespace {
TEST(AllocMeter, Counts) {
  AllocMeter::reset();
  {
    const std::string text(100000, 'x');
  }
  EXPECT_GE(AllocMeter::peak(), 100000u);
  EXPECT_LT(AllocMeter::peak(), 200000u);
}
}  // namespace
}  // namespace spyre::formats::testing
