#include "platform/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/error.h"

namespace spyre::platform {
namespace {

namespace fs = std::filesystem;

class AvailableMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "spyre_memory_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ + "/" + path).substr(0, (root_ + "/" + path).rfind('/')));
    std::ofstream(root_ + "/" + path) << text;
  }
  std::string root_;
};

TEST_F(AvailableMemory, UnknownWhenNothingIsSaid) {
  EXPECT_EQ(available_memory(root_), -1);
}

TEST_F(AvailableMemory, MemInfo) {
  write("proc/meminfo", "MemTotal: 100 kB\nMemFree: 3 kB\nMemAvailable:   64 kB\n");
  EXPECT_EQ(available_memory(root_), 65536);
}

TEST_F(AvailableMemory, UsedIsWhatIsAnonymous) {
  EXPECT_EQ(used_memory(root_), 0);
  write("proc/self/status", "VmRSS:\t 900 kB\nRssAnon:\t     12 kB\nRssFile: 888 kB\n");
  EXPECT_EQ(used_memory(root_), 12 * 1024);
}

TEST_F(AvailableMemory, TightestOfSecondVersionGroups) {
  write("proc/meminfo", "MemAvailable: 1000 kB\n");
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/b/memory.max", "max\n");
  write("sys/fs/cgroup/a/b/memory.current", "5000\n");
  write("sys/fs/cgroup/a/memory.max", "20000\n");
  write("sys/fs/cgroup/a/memory.current", "9000\n");
  write("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 4000\n");
  EXPECT_EQ(available_memory(root_), 20000 - (9000 - 4000));
}

TEST_F(AvailableMemory, FirstVersionInAContainerSeesTheMountOnly) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/docker/xyz\n4:memory:/docker/xyz\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "10000\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "12000\n");
  EXPECT_EQ(available_memory(root_), 0);
}

TEST_F(AvailableMemory, NonsenseIsIgnored) {
  write("proc/meminfo", "MemAvailable: many kB\n");
  write("proc/self/cgroup", "x\n0::relative\n:::\n");
  write("sys/fs/cgroup/memory.max", "-7\n");
  EXPECT_EQ(available_memory(root_), -1);
}

TEST(RequireMemory, RefusesWithTheArithmetic) {
  require_memory("KV cache", 4, "blocks", 250, "", 1000);
  try {
    require_memory("KV cache", 5, "blocks", 250, "give less", 1000);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("KV cache: 5 blocks x 250 bytes"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("give less"));
  }
  EXPECT_THROW(require_memory("x", std::numeric_limits<int64_t>::max(), "y", 2, "", -1), Error);
}

}  // namespace
}  // namespace spyre::platform
