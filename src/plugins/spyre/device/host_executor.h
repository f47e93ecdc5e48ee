// Runs host plans on a thread team: one region per step, no allocation, lock or system call inside it.
//
// Owns the memory that plans work in: one arena for what all members see, a chunk and a replica per member
// (host_plan.h). One per device; one run at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/team.h"
#include "plugins/spyre/device/host_plan.h"
#include "plugins/spyre/device/memory.h"
#include "plugins/spyre/device/program.h"

namespace spyre::device {

// When rows are many: at least so many for each member. Each then reads all weights, and 64 rows' arithmetic on a
// weight takes five times as long as reading it from the last-level cache or from memory shared by two.
struct HostExecutorOptions {
  int64_t rows_per_member = 64;  // 1..kChunkRows; tests choose other numbers
};

class HostExecutor {
 public:
  explicit HostExecutor(ThreadTeam& team, const HostExecutorOptions& options = {});

  // Takes the memory that runs of this plan need, so that none of them has to.
  void prepare(const HostPlan& plan);
  // Programs in order. |rows| is the number of live rows of each launch.
  void run(std::span<const Launch* const> launches, std::span<const int64_t> rows, const attention::StepTables* tables);

  // Whether a step of |rows| rows is divided by rows.
  bool many(int64_t rows) const { return rows >= options_.rows_per_member * team_.size(); }
  // Up to how many rows a prologue is replicated: waiting at a barrier takes as long as a norm of one or two rows, and
  // behind it stands a product that takes a hundred times as long as its norm.
  int64_t replica_rows() const { return team_.size() == 1 ? 0 : kReplicatedRows / (team_.size() - 1); }

 private:
  static constexpr int64_t kReplicatedRows = 128;

  struct alignas(64) Member {
    std::vector<std::byte*> slots;  // of the launch being run, as this member sees them
    std::vector<TensorStore*> stores;
    std::byte* chunk = nullptr;
    std::byte* replica = nullptr;
    std::byte* scratch = nullptr;
  };

  void run_launch(const Launch& launch, int64_t rows, const attention::StepTables* tables, int index);
  void find_slots(const Launch& launch, Member& me) const;
  void run_many(const HostPlan& plan, HostFrame& frame, int index);
  void run_few(const HostPlan& plan, HostFrame& frame, int index);
  void run_prologue(const HostPlan& plan, const HostPhase& phase, HostFrame& frame, int index);
  void run_chains(const HostPlan& plan, const HostPhase& phase, const HostFrame& frame, int index) const;

  ThreadTeam& team_;
  HostExecutorOptions options_;
  HostBuffer arena_, chunks_, replicas_, scratch_;
  std::vector<Member> members_;
};

// The lanes of each chain that member |index| of |count| computes: a run of them, by their costs. |lanes| has one entry
// per chain.
void share_lanes(std::span<const HostChain> chains, int index, int count, std::span<Range> lanes);

}  // namespace spyre::device
