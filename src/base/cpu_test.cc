#include "base/cpu.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/error.h"

namespace spyre {
namespace {

class CgroupTree : public ::testing::Test {
 protected:
  CgroupTree() {
    root_ = std::filesystem::path(::testing::TempDir()) /
            ("cgroup_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(root_);
  }
  ~CgroupTree() override { std::filesystem::remove_all(root_); }
  void file(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  double quota() const { return cgroup_cpu_quota(root_.string()); }
  std::filesystem::path root_;
};

TEST_F(CgroupTree, NoFilesMeanNoQuota) {
  EXPECT_EQ(quota(), 0.0);
}

TEST_F(CgroupTree, V2TakesTheLowestOfAllAncestors) {
  file("proc/self/cgroup", "0::/kube/pod/box\n");
  file("sys/fs/cgroup/kube/cpu.max", "800000 100000\n");
  file("sys/fs/cgroup/kube/pod/cpu.max", "250000 100000\n");
  file("sys/fs/cgroup/kube/pod/box/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 2.5);
}

TEST_F(CgroupTree, V2PathOfTheHostFallsBackToTheMount) {
  file("proc/self/cgroup", "0::/not/visible/here\n");
  file("sys/fs/cgroup/cpu.max", "150000 50000\n");
  EXPECT_EQ(quota(), 3.0);
}

TEST_F(CgroupTree, V1ReadsQuotaAndPeriod) {
  file("proc/self/cgroup", "4:memory:/a\n3:cpu,cpuacct:/a/b\n");
  file("sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1\n");
  file("sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us", "100000\n");
  file("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "400000\n");
  file("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 4.0);
}

TEST_F(CgroupTree, NonsenseIsNoQuota) {
  file("proc/self/cgroup", "garbage\n0::/\n");
  file("sys/fs/cgroup/cpu.max", "many 0\n");
  EXPECT_EQ(quota(), 0.0);
}

TEST(UsableCpus, IsAtLeastOne) {
  EXPECT_GE(usable_cpus(), 1);
}

TEST(CpuFeatures, LevelsFormALadder) {
  EXPECT_EQ(CpuFeatures::of(CpuLevel::kPortable), CpuFeatures{});
  EXPECT_EQ(CpuFeatures::of(CpuLevel::kAvx512), (CpuFeatures{.avx2 = true, .avx512 = true}));
  EXPECT_EQ(to_string(CpuFeatures::of(CpuLevel::kAmx)), "avx2+avx512+avx512_bf16+amx");
  EXPECT_EQ(to_string(CpuFeatures{}), "portable");
  // A machine without AVX-512 stays without it whatever the cap says.
  EXPECT_EQ(CpuFeatures::of(CpuLevel::kAvx2).capped(CpuLevel::kAmx), CpuFeatures::of(CpuLevel::kAvx2));
}

TEST(CpuFeatures, EnvironmentCapsAndRefuses) {
  const char* before = std::getenv("SPYRE_CPU_FEATURES");
  const std::string saved = before ? before : "";
  setenv("SPYRE_CPU_FEATURES", "portable", 1);
  EXPECT_EQ(CpuFeatures::capped_by_environment(), CpuFeatures{});
  setenv("SPYRE_CPU_FEATURES", "avx2", 1);
  EXPECT_EQ(CpuFeatures::capped_by_environment(), CpuFeatures::detected().capped(CpuLevel::kAvx2));
  setenv("SPYRE_CPU_FEATURES", "sse9", 1);
  try {
    CpuFeatures::capped_by_environment();
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("sse9"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("portable, avx2, avx512, avx512_bf16, amx"), std::string::npos);
  }
  before ? setenv("SPYRE_CPU_FEATURES", saved.c_str(), 1) : unsetenv("SPYRE_CPU_FEATURES");
}

#if defined(__x86_64__)
TEST(ScopedFlushDenormals, FlushesWhileItLives) {
  volatile float tiny = std::numeric_limits<float>::min();
  volatile float quarter = 0.25f;
  EXPECT_NE(tiny * quarter, 0.0f);
  {
    ScopedFlushDenormals flush;
    const float product = tiny * quarter;
    EXPECT_EQ(product, 0.0f);
  }
  EXPECT_NE(tiny * quarter, 0.0f);
}
#endif

}  // namespace
}  // namespace spyre
