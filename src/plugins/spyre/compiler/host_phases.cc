#include "plugins/spyre/compiler/host_phases.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace spyre::compiler {
namespace {

using device::HostChain;
using device::HostPhase;
using device::HostPiece;
using device::HostPlan;
using device::HostSegment;
using device::HostSlot;
using device::SlotKind;
using device::StepAccess;
using device::StepForm;

// A replicated prologue is one norm and what leads up to it.
constexpr int32_t kMaxPrologue = 2;
// Lanes of steps that can be cut anywhere: the products' granularity.
constexpr int64_t kLaneColumns = 16;

class PhasePlanner {
 public:
  PhasePlanner(HostPlan& plan, std::span<const SlotUse> uses, int threads)
      : plan_(plan), uses_(uses), threads_(threads) {
    for (const auto& step : plan.steps) forms_.push_back(step->form());
  }

  void run() {
    const auto steps = static_cast<int32_t>(forms_.size());
    for (int32_t first = 0, end; first < steps; first = end) {
      end = first + 1;
      const bool rowwise = forms_[first].rowwise;
      while (rowwise && end < steps && forms_[end].rowwise) ++end;
      HostSegment segment{.rowwise = rowwise, .first = first, .count = end - first};
      if (rowwise) {
        mark_private(segment);
        cut(first, end);
      } else {
        plan_.phases.push_back({.kind = HostPhase::Kind::kWhole, .first = first, .count = 1});
      }
      plan_.segments.push_back(std::move(segment));
    }
  }

 private:
  void mark_private(HostSegment& segment) {
    for (size_t s = 0; s < plan_.slots.size(); ++s) {
      HostSlot& slot = plan_.slots[s];
      const bool inside = uses_[s].first >= segment.first && uses_[s].last < segment.first + segment.count;
      if (slot.kind != SlotKind::kArena || slot.row_bytes == 0 || !inside) continue;
      slot.is_private = true;
      segment.private_slots.push_back(static_cast<int32_t>(s));
    }
  }

  // The phases of the rowwise steps [first, end).
  void cut(int32_t first, int32_t end) {
    while (first < end) {
      int32_t product = first;
      while (product < end && forms_[product].cost == 0) ++product;
      const int32_t rows = product - first;
      if (product == end) return add_rows(first, rows);
      const bool divisible = forms_[product].columns > 0;
      HostPhase phase{.kind = HostPhase::Kind::kColumns, .first = product};
      phase.count = divisible ? follow(product, end, phase) : 1;
      first = product + phase.count;
      if (rows > 0 && divisible && replicate(product - rows, rows, phase)) {
        phase.first -= rows;
        phase.count += rows;
        phase.prologue = rows;
      } else if (rows > 0) {
        add_rows(product - rows, rows);
      }
      // A product alone divides itself, by rows where it has few columns.
      if (phase.count == 1) phase = {.kind = HostPhase::Kind::kWhole, .first = product, .count = 1};
      plan_.phases.push_back(std::move(phase));
    }
  }

  void add_rows(int32_t first, int32_t count) {
    plan_.phases.push_back({.kind = HostPhase::Kind::kRows, .first = first, .count = count});
  }

  // How many steps from |product| on can be computed by columns without waiting in between; fills the phase's chains.
  int32_t follow(int32_t product, int32_t end, HostPhase& phase) const {
    int32_t count = 1;
    while (product + count < end && joins(product, product + count)) ++count;
    while (!chain(product, count, phase)) --count;
    return count;
  }

  const StepAccess* writer(int32_t first, int32_t end, int32_t slot, int32_t* step = nullptr) const {
    for (int32_t s = end - 1; s >= first; --s) {
      for (const StepAccess& access : forms_[s].accesses) {
        if (!access.writes || access.slot != slot) continue;
        if (step != nullptr) *step = s;
        return &access;
      }
    }
    return nullptr;
  }

  // Whether |step| reads what [first, step) write by its own columns only.
  bool joins(int32_t first, int32_t step) const {
    const StepForm& form = forms_[step];
    if (form.columns == 0) return false;
    return std::all_of(form.accesses.begin(), form.accesses.end(), [&](const StepAccess& read) {
      if (read.writes) return true;
      const StepAccess* written = writer(first, step, read.slot);
      return written == nullptr || (read.by_column && written->by_column && written->row_stride == read.row_stride);
    });
  }

  // The chains of steps [first, first + count), from the last step to the first: a step that nobody here reads begins a
  // chain, and what it reads of the others is their part in it. False where some step's columns are not divided into
  // the chains that read it. One step alone always has its chain.
  bool chain(int32_t first, int32_t count, HostPhase& phase) const {
    phase.chains.clear();
    phase.pieces.assign(static_cast<size_t>(count), {});
    for (int32_t s = count - 1; s >= 0; --s) {
      const StepForm& form = forms_[first + s];
      std::vector<HostPiece>& pieces = phase.pieces[s];
      if (pieces.empty()) {
        if (phase.chains.size() == device::kMaxChains) return count == 1;
        pieces.push_back({.chain = static_cast<int32_t>(phase.chains.size())});
        phase.chains.push_back({.columns = form.columns, .width = form.unit == 1 ? kLaneColumns : form.unit});
      } else if (!divides(form, phase.chains, pieces)) {
        return false;
      }
      for (const HostPiece& piece : pieces) {
        HostChain& of = phase.chains[piece.chain];
        of.cost += of.width * form.cost;
      }
      for (const StepAccess& read : form.accesses) ask(first, first + s, read, pieces, phase);
    }
    for (HostChain& c : phase.chains) c.cost = std::max<int64_t>(c.cost, 1);
    return count == 1 || balanced(phase.chains);
  }

  // Lanes that are much longer than a member's part of the work cost more than the barrier that they save.
  bool balanced(const std::vector<HostChain>& chains) const {
    int64_t total = 0, longest = 0;
    for (const HostChain& chain : chains) {
      total += chain.lanes() * chain.cost;
      longest = std::max(longest, chain.cost);
    }
    return 2 * longest * threads_ <= 3 * total;
  }

  // The pieces that |step| needs of whoever writes what it reads.
  void ask(int32_t first, int32_t step, const StepAccess& read, const std::vector<HostPiece>& pieces,
           HostPhase& phase) const {
    int32_t from = -1;
    const StepAccess* written = read.writes ? nullptr : writer(first, step, read.slot, &from);
    if (written == nullptr) return;
    std::vector<HostPiece>& asked = phase.pieces[from - first];
    for (const HostPiece& piece : pieces) {
      const HostPiece wanted{piece.chain, piece.offset + read.offset - written->offset};
      const auto same = [&](const HostPiece& p) { return p.chain == wanted.chain && p.offset == wanted.offset; };
      if (std::none_of(asked.begin(), asked.end(), same)) asked.push_back(wanted);
    }
  }

  // Whether the pieces are all of the step's columns, each once, cut where the step can be cut. Sorts them.
  static bool divides(const StepForm& form, const std::vector<HostChain>& chains, std::vector<HostPiece>& pieces) {
    std::sort(pieces.begin(), pieces.end(), [](const HostPiece& a, const HostPiece& b) { return a.offset < b.offset; });
    int64_t next = 0;
    for (const HostPiece& piece : pieces) {
      const HostChain& chain = chains[piece.chain];
      if (piece.offset != next || piece.offset % form.unit != 0 || chain.width % form.unit != 0) return false;
      next += chain.columns;
      if (chain.columns % form.unit != 0 && next != form.columns) return false;
    }
    return next == form.columns && pieces.size() <= device::kMaxChains;
  }

  // Whether every member may do the steps [first, first + count) for itself before the columns of |phase|: it has all
  // rows of what these read of it, which must therefore be read nowhere else; and of the rest its own rows.
  bool replicate(int32_t first, int32_t count, HostPhase& phase) {
    if (count > kMaxPrologue) return false;
    const int32_t end = phase.first + phase.count;
    size_t bytes = 0;
    std::vector<device::HostReplica> replicas;
    for (int32_t s = first; s < first + count; ++s) {
      for (const StepAccess& access : forms_[s].accesses) {
        if (!access.writes) continue;
        const HostSlot& slot = plan_.slots[access.slot];
        const SlotUse& use = uses_[access.slot];
        const bool only = slot.is_private && use.first >= first && use.last < end;
        if (slot.row_bytes == 0 || (!only && touches(phase.first, end, access.slot))) return false;
        replicas.push_back({.slot = access.slot, .offset = bytes, .only = only});
        bytes += static_cast<size_t>((slot.row_bytes + 63) / 64 * 64);
      }
    }
    if (replicas.size() > device::kMaxReplicas) return false;
    phase.replicas = std::move(replicas);
    plan_.replica_bytes = std::max(plan_.replica_bytes, bytes);
    return true;
  }

  bool touches(int32_t first, int32_t end, int32_t slot) const {
    for (int32_t s = first; s < end; ++s) {
      for (const StepAccess& access : forms_[s].accesses) {
        if (access.slot == slot) return true;
      }
    }
    return false;
  }

  HostPlan& plan_;
  std::span<const SlotUse> uses_;
  int threads_;
  std::vector<StepForm> forms_;
};

// Offsets for slots of |bytes| that are in use from |first| to |last|: first fit, largest first. Returns the total.
struct Tenant {
  int32_t slot = 0;
  size_t bytes = 0;
  int32_t first = 0, last = 0;
};

size_t place_tenants(std::vector<Tenant> tenants, std::vector<HostSlot>& slots) {
  constexpr size_t kAlignment = 64;
  std::stable_sort(tenants.begin(), tenants.end(), [](const Tenant& a, const Tenant& b) { return a.bytes > b.bytes; });
  size_t total = 0;
  for (size_t t = 0; t < tenants.size(); ++t) {
    const Tenant& tenant = tenants[t];
    std::vector<std::pair<size_t, size_t>> taken;  // by those placed before, in use at the same time
    for (size_t o = 0; o < t; ++o) {
      const Tenant& other = tenants[o];
      if (other.first > tenant.last || tenant.first > other.last) continue;
      taken.emplace_back(slots[other.slot].arena_offset, slots[other.slot].arena_offset + other.bytes);
    }
    std::sort(taken.begin(), taken.end());
    size_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (offset + tenant.bytes <= begin) break;
      offset = std::max(offset, (end + kAlignment - 1) / kAlignment * kAlignment);
    }
    slots[tenant.slot].arena_offset = offset;
    total = std::max(total, offset + tenant.bytes);
  }
  return total;
}

}  // namespace

void plan_phases(HostPlan& plan, std::span<const SlotUse> uses, int threads) {
  PhasePlanner(plan, uses, threads).run();
}

// Between the barriers of a segment one member may be at its last step while another is at its first: shared slots that
// one segment touches are all in use at once. With few rows the same holds of a phase's private slots.
void plan_arena(HostPlan& plan, std::span<const SlotUse> uses) {
  std::vector<int32_t> segment_of(plan.steps.size()), phase_of(plan.steps.size());
  for (size_t i = 0; i < plan.segments.size(); ++i) {
    const HostSegment& segment = plan.segments[i];
    std::fill_n(segment_of.begin() + segment.first, segment.count, static_cast<int32_t>(i));
  }
  for (size_t i = 0; i < plan.phases.size(); ++i) {
    const HostPhase& phase = plan.phases[i];
    std::fill_n(phase_of.begin() + phase.first, phase.count, static_cast<int32_t>(i));
  }
  std::vector<Tenant> shared, chunk;
  for (size_t s = 0; s < plan.slots.size(); ++s) {
    const HostSlot& slot = plan.slots[s];
    const SlotUse& use = uses[s];
    if (slot.kind != SlotKind::kArena || use.first < 0) continue;
    const auto id = static_cast<int32_t>(s);
    if (slot.is_private) {
      const auto bytes = static_cast<size_t>(slot.row_bytes * device::kChunkRows);
      chunk.push_back({id, bytes, phase_of[use.first], phase_of[use.last]});
    } else {
      shared.push_back({id, use.bytes, segment_of[use.first], segment_of[use.last]});
    }
  }
  plan.arena_bytes = place_tenants(std::move(shared), plan.slots);
  plan.chunk_bytes = place_tenants(std::move(chunk), plan.slots);
}

}  // namespace spyre::compiler
