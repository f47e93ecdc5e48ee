#include "base/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace spyre {
namespace {

using ::testing::ElementsAre;
namespace fs = std::filesystem;

// A folder that stands before /sys, removed with the object.
class FakeMachine {
 public:
  FakeMachine() {
    std::string name = (fs::temp_directory_path() / "spyre_topology_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    root_ = name;
  }
  ~FakeMachine() {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;

  FakeMachine& write(const std::string& path, const std::string& text) {
    const fs::path file = fs::path(root_) / "sys/devices/system/node" / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
    return *this;
  }
  Topology read() const { return Topology::read(root_); }

 private:
  std::string root_;
};

TEST(Topology, ReadsListsAsTheKernelWritesThem) {
  EXPECT_THAT(parse_cpu_list("0-3,8,10-11\n").value(), ElementsAre(0, 1, 2, 3, 8, 10, 11));
  EXPECT_THAT(parse_cpu_list("5").value(), ElementsAre(5));
  EXPECT_THAT(parse_cpu_list("4,2-4").value(), ElementsAre(2, 3, 4));
  EXPECT_THAT(parse_cpu_list("\n").value(), ElementsAre());  // a node without CPUs
  for (const char* text : {"x", "3-1", "1,,2", "1,", "-1", "0-65536", "99999999999", "1 2", "0x1"}) {
    EXPECT_FALSE(parse_cpu_list(text)) << text;
  }
}

TEST(Topology, NodesOfAFakeMachine) {
  FakeMachine machine;
  machine.write("online", "0,2-3\n").write("node0/cpulist", "0,2\n").write("node2/cpulist", "1,3\n");
  machine.write("node3/cpulist", "\n");  // memory alone
  const Topology topology = machine.read();
  EXPECT_THAT(topology.nodes(), ElementsAre(NumaNode{0, {0, 2}}, NumaNode{2, {1, 3}}, NumaNode{3, {}}));
  EXPECT_EQ(topology.node_of(3), 2);
  EXPECT_EQ(topology.node_of(77), 0);
  const int cpus[] = {0, 1, 2, 3};
  EXPECT_THAT(topology.in_node_order(cpus), ElementsAre(0, 2, 1, 3));
}

TEST(Topology, WhatCannotBeReadIsOneNode) {
  const int cpus[] = {3, 1, 2};
  for (const auto* online : {"", "all", "0-"}) {
    const Topology topology = FakeMachine().write("online", online).read();
    EXPECT_TRUE(topology.nodes().empty()) << online;
    EXPECT_THAT(topology.in_node_order(cpus), ElementsAre(1, 2, 3));
  }
  const Topology half = FakeMachine().write("online", "0-1").write("node1/cpulist", "2").read();
  EXPECT_THAT(half.nodes(), ElementsAre(NumaNode{1, {2}}));
  EXPECT_THAT(half.in_node_order(cpus), ElementsAre(1, 3, 2));
  EXPECT_TRUE(Topology::read("/nonexistent").nodes().empty());
}

}  // namespace
}  // namespace spyre
