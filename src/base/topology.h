// Which CPUs share a memory controller: the NUMA nodes of this machine, read from /sys/devices/system/node.
//
// ThreadTeam pins its members in the order of the nodes, so that neighbouring members, and with them neighbouring
// columns of a weight, belong to one node. That is what is there for machines with several nodes: nobody has measured
// on one yet. Weights are still touched first by whichever member reads them, not by the owner of their columns, and a
// process has one team; for a team per node, start a process per node under `numactl`.
//
// An immutable value.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/export.h"

namespace spyre {

struct NumaNode {
  int id = 0;
  std::vector<int> cpus;  // ascending; empty for a node of memory alone
  bool operator==(const NumaNode&) const = default;
};

class SPYRE_API Topology {
 public:
  // Of this machine. `root` stands before /sys (tests pass a folder). What cannot be read is left out: without any node
  // there is one, node 0, to which every CPU belongs. Never an error.
  static Topology read(const std::string& root = "");

  Topology() = default;  // one node
  explicit Topology(std::vector<NumaNode> nodes) : nodes_(std::move(nodes)) {}

  const std::vector<NumaNode>& nodes() const { return nodes_; }  // by id; empty: one node, its CPUs not known
  // The node of a CPU that no node names is 0.
  int node_of(int cpu) const;
  // |cpus| node by node, in ascending order inside a node.
  std::vector<int> in_node_order(std::span<const int> cpus) const;

 private:
  std::vector<NumaNode> nodes_;
};

// "0-3,8,10-11" as the kernel writes lists of CPUs and nodes: ascending, each once. Nothing for another text, a number
// of 65536 and more, or a range that runs backwards.
SPYRE_API std::optional<std::vector<int>> parse_cpu_list(std::string_view text);

}  // namespace spyre
