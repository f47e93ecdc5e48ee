#include "plugins/spyre/device/host_executor.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "plugins/spyre/device/tensor.h"

namespace spyre::device {
namespace {

size_t lines(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

void grow(HostBuffer& buffer, size_t bytes) {
  if (buffer.size() < bytes) buffer = HostBuffer(bytes);
}

void run_steps(const HostPlan& plan, int32_t first, int32_t count, const HostFrame& frame, Range rows) {
  if (rows.size() == 0) return;
  for (int32_t s = first; s < first + count; ++s) plan.steps[s]->run_rows(frame, rows);
}

}  // namespace

HostExecutor::HostExecutor(ThreadTeam& team, const HostExecutorOptions& options) : team_(team), options_(options) {
  SPYRE_CHECK(options.rows_per_member >= 1 && options.rows_per_member <= kChunkRows, "{} rows per member",
              options.rows_per_member);
  members_.resize(static_cast<size_t>(team.size()));
}

void HostExecutor::prepare(const HostPlan& plan) {
  const size_t members = members_.size(), replica = plan.replica_bytes * static_cast<size_t>(replica_rows());
  grow(arena_, plan.arena_bytes);
  grow(chunks_, lines(plan.chunk_bytes) * members);
  grow(replicas_, lines(replica) * members);
  grow(scratch_, lines(plan.scratch_bytes) * members);
  for (size_t m = 0; m < members; ++m) {
    Member& member = members_[m];
    if (member.slots.size() < plan.slots.size()) {
      member.slots.resize(plan.slots.size());
      member.stores.resize(plan.slots.size());
    }
    member.chunk = chunks_.data() + m * (chunks_.size() / members / 64 * 64);
    member.replica = replicas_.data() + m * (replicas_.size() / members / 64 * 64);
    member.scratch = scratch_.data() + m * (scratch_.size() / members / 64 * 64);
  }
}

void HostExecutor::run(std::span<const Launch* const> launches, std::span<const int64_t> rows,
                       const attention::StepTables* tables) {
  for (const Launch* launch : launches) prepare(launch->program->host);
  TeamLease lease(team_);
  lease->run([&](int index, int) {
    for (size_t i = 0; i < launches.size(); ++i) run_launch(*launches[i], rows[i], tables, index);
  });
}

// Every member finds the addresses for itself: they are its own where memory is, and nobody waits for a table.
void HostExecutor::find_slots(const Launch& launch, Member& me) const {
  const HostPlan& plan = launch.program->host;
  for (size_t s = 0; s < plan.slots.size(); ++s) {
    const HostSlot& slot = plan.slots[s];
    TensorStore* store = nullptr;
    switch (slot.kind) {
      case SlotKind::kArena:
        break;
      case SlotKind::kInput:
        store = launch.inputs[slot.index].get();
        break;
      case SlotKind::kParameter:
        store = launch.parameters[slot.index].get();
        break;
      case SlotKind::kState:
        store = launch.states[slot.index].get();
        break;
      case SlotKind::kOutput:
        store = launch.outputs[slot.index].get();
        break;
    }
    me.stores[s] = store;
    if (slot.kind != SlotKind::kArena) {
      me.slots[s] = store != nullptr ? store->memory.data() : nullptr;
    } else if (slot.is_private) {
      // Few rows: the chunks of all members, side by side, hold the rows of all.
      me.slots[s] = chunks_.data() + slot.arena_offset * members_.size();
    } else {
      me.slots[s] = arena_.data() + slot.arena_offset;
    }
  }
}

void HostExecutor::run_launch(const Launch& launch, int64_t rows, const attention::StepTables* tables, int index) {
  Member& me = members_[index];
  const HostPlan& plan = launch.program->host;
  find_slots(launch, me);
  HostFrame frame{.rows = rows,
                  .slots = {me.slots.data(), plan.slots.size()},
                  .stores = {me.stores.data(), plan.slots.size()},
                  .tables = tables,
                  .scratch = me.scratch};
  if (many(rows)) {
    run_many(plan, frame, index);
  } else {
    run_few(plan, frame, index);
  }
}

void HostExecutor::run_many(const HostPlan& plan, HostFrame& frame, int index) {
  Member& me = members_[index];
  const Range mine = split_range(frame.rows, 1, index, team_.size());
  const int64_t chunks = (mine.size() + kChunkRows - 1) / kChunkRows;
  for (const HostSegment& segment : plan.segments) {
    if (!segment.rowwise) {
      plan.steps[segment.first]->run(frame, index, team_.size());
    } else {
      for (int64_t c = 0; c < chunks; ++c) {
        const Range chunk = split_range(mine.size(), 1, static_cast<int>(c), static_cast<int>(chunks));
        const Range rows{mine.begin + chunk.begin, mine.begin + chunk.end};
        for (const int32_t s : segment.private_slots) {
          const HostSlot& slot = plan.slots[s];
          me.slots[s] = me.chunk + static_cast<int64_t>(slot.arena_offset) - rows.begin * slot.row_bytes;
        }
        run_steps(plan, segment.first, segment.count, frame, rows);
      }
    }
    team_.barrier();
  }
}

void HostExecutor::run_few(const HostPlan& plan, HostFrame& frame, int index) {
  for (const HostPhase& phase : plan.phases) {
    switch (phase.kind) {
      case HostPhase::Kind::kWhole:
        plan.steps[phase.first]->run(frame, index, team_.size());
        break;
      case HostPhase::Kind::kRows:
        run_steps(plan, phase.first, phase.count, frame, split_range(frame.rows, 1, index, team_.size()));
        break;
      case HostPhase::Kind::kColumns:
        if (phase.prologue > 0) run_prologue(plan, phase, frame, index);
        run_chains(plan, phase, frame, index);
        break;
    }
    team_.barrier();
  }
}

// By rows, and all wait for all; or each member all rows, the others' into its replica alone, its own also where they
// are read later.
void HostExecutor::run_prologue(const HostPlan& plan, const HostPhase& phase, HostFrame& frame, int index) {
  const Range mine = split_range(frame.rows, 1, index, team_.size());
  if (phase.replicas.empty() || frame.rows > replica_rows()) {
    run_steps(plan, phase.first, phase.prologue, frame, mine);
    team_.barrier();
    return;
  }
  Member& me = members_[index];
  std::array<std::byte*, kMaxReplicas> shared{};
  const auto redirect = [&](bool only) {
    for (size_t i = 0; i < phase.replicas.size(); ++i) {
      const HostReplica& replica = phase.replicas[i];
      if (replica.only != only) continue;
      shared[i] = me.slots[replica.slot];
      me.slots[replica.slot] = me.replica + replica.offset * static_cast<size_t>(replica_rows());
    }
  };
  redirect(true);
  run_steps(plan, phase.first, phase.prologue, frame, mine);
  redirect(false);
  run_steps(plan, phase.first, phase.prologue, frame, {0, mine.begin});
  run_steps(plan, phase.first, phase.prologue, frame, {mine.end, frame.rows});
  for (size_t i = 0; i < phase.replicas.size(); ++i) {
    if (!phase.replicas[i].only) me.slots[phase.replicas[i].slot] = shared[i];
  }
}

void HostExecutor::run_chains(const HostPlan& plan, const HostPhase& phase, const HostFrame& frame, int index) const {
  std::array<Range, kMaxChains> lanes, columns;
  share_lanes(phase.chains, index, team_.size(), lanes);
  for (size_t s = 0; s < phase.pieces.size(); ++s) {
    size_t count = 0;
    for (const HostPiece& piece : phase.pieces[s]) {
      const HostChain& chain = phase.chains[piece.chain];
      const Range range{std::min(lanes[piece.chain].begin * chain.width, chain.columns) + piece.offset,
                        std::min(lanes[piece.chain].end * chain.width, chain.columns) + piece.offset};
      if (range.size() == 0) continue;
      if (count > 0 && columns[count - 1].end == range.begin) {
        columns[count - 1].end = range.end;
      } else {
        columns[count++] = range;
      }
    }
    if (count == 0) continue;
    const HostStep& step = *plan.steps[phase.first + phase.prologue + static_cast<int32_t>(s)];
    step.run_columns(frame, {0, frame.rows}, {columns.data(), count});
  }
}

std::vector<std::string> describe_phases(const HostPlan& plan) {
  std::vector<std::string> lines;
  for (const HostPhase& phase : plan.phases) {
    std::string line = phase.prologue > 0 ? "{" : "";
    for (int32_t s = 0; s < phase.count; ++s) {
      line += plan.steps[phase.first + s]->describe();
      if (s + 1 == phase.prologue) {
        line += "} ";
      } else if (s + 1 < phase.count) {
        line += ", ";
      }
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

// The lanes of all chains stand in one row, each as long as its cost; a member takes those whose middle is in its part.
void share_lanes(std::span<const HostChain> chains, int index, int count, std::span<Range> lanes) {
  int64_t total = 0;
  for (const HostChain& chain : chains) total += chain.lanes() * chain.cost;
  // The first lane of a chain that begins at |before| whose middle is at or behind |edge| (both doubled).
  const auto first_behind = [](const HostChain& chain, int64_t before, int64_t edge) {
    const int64_t distance = edge - 2 * before - chain.cost;
    return std::clamp<int64_t>((distance + 2 * chain.cost - 1) / (2 * chain.cost), 0, chain.lanes());
  };
  const int64_t begin = 2 * total * index / count, end = 2 * total * (index + 1) / count;
  int64_t before = 0;
  for (size_t c = 0; c < chains.size(); ++c) {
    lanes[c] = {first_behind(chains[c], before, begin), first_behind(chains[c], before, end)};
    before += chains[c].lanes() * chains[c].cost;
  }
}

}  // namespace spyre::device
