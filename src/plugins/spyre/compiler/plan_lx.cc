#include "plugins/spyre/compiler/plan_lx.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "plugins/spyre/device/core_map.h"

namespace spyre::compiler {

using device::BufferHome;
using device::CardBuffer;
using device::CardPlan;
using device::DeviceOp;
using device::LxCopy;
using device::LxReason;
using device::LxVerdict;

namespace {

// Operations that compile kernels of their own: the boundary that attention hides behind.
bool is_extern(std::string_view name) {
  return name == "attention" || name == "kv_store";
}
// Indirect access: the operands of these but for what is stored.
bool looks_up(const DeviceOp& op, size_t operand) {
  return (op.name == "gather" && operand < 2) || (op.name == "indexcopy" && operand == 1);
}

// What each core touches of the memory behind an operand: the same runs of elements from starts of its own. Views are
// resolved, so that two operands are alike whatever dimensions they are seen in.
struct Region {
  std::vector<std::pair<int64_t, int64_t>> runs;  // (stride, count), ascending, merged where one continues the other
  std::vector<int64_t> starts;                    // per core
  int64_t core_elements = 1;
  bool even = true;  // every dimension is cut into whole parts
  bool operator==(const Region&) const = default;
};

Region region_of(const DeviceOp& op, size_t operand, const CardBuffer& buffer) {
  const device::Placement& at = buffer.placement;
  const std::vector<int>& walks = op.walks.at(operand);
  Region region;
  region.starts.assign(static_cast<size_t>(device::core_count(op.splits)), at.offset);
  region.runs.emplace_back(1, at.stick_elements);  // a stick moves whole, also a sparse one
  for (size_t d = 0; d < at.strides.size(); ++d) {
    int64_t count = buffer.spec.axes[d].card();
    if (static_cast<int>(d) == at.stick_dim) count = (count + at.stick_elements - 1) / at.stick_elements;
    const int walk = walks.empty() ? -1 : walks[d];
    const int64_t split = walk < 0 ? 1 : op.splits[walk];
    if (count % split != 0) {
      region.even = false;
      return region;
    }
    if (count / split > 1) region.runs.emplace_back(at.strides[d], count / split);
    if (split == 1) continue;
    for (size_t core = 0; core < region.starts.size(); ++core) {
      region.starts[core] += device::slice_of_core(op.splits, static_cast<size_t>(walk), static_cast<int64_t>(core)) *
                             (count / split) * at.strides[d];
    }
  }
  std::sort(region.runs.begin(), region.runs.end());
  std::vector<std::pair<int64_t, int64_t>> merged;
  for (const auto& [stride, count] : region.runs) {
    region.core_elements *= count;
    if (!merged.empty() && stride == merged.back().first * merged.back().second) {
      merged.back().second *= count;
    } else {
      merged.emplace_back(stride, count);
    }
  }
  region.runs = std::move(merged);
  return region;
}

struct Use {
  int32_t op = 0;
  size_t operand = 0;  // inputs, then outputs
  int32_t buffer = 0;  // what the operation names: the buffer or a view of it
};

class LxPlanner {
 public:
  LxPlanner(CardPlan& plan, const LxOptions& options)
      : plan_(plan), options_(options), writes_(plan.buffers.size()), reads_(plan.buffers.size()) {}

  void run() {
    collect_uses();
    std::vector<int32_t> candidates;
    for (int32_t b = 0; b < static_cast<int32_t>(plan_.buffers.size()); ++b) {
      CardBuffer& buffer = plan_.buffers[b];
      SPYRE_CHECK(buffer.lx.reason == LxReason::kNotPlanned, "buffer {} is planned twice", b);
      buffer.lx = judge(b);
      if (buffer.lx.reason == LxReason::kNotPlanned) candidates.push_back(b);
    }
    place(candidates);
    for (int32_t i = 0; i < static_cast<int32_t>(plan_.ops.size()); ++i) account(i);
  }

 private:
  const CardBuffer& buffer(int32_t b) const { return plan_.buffers[b]; }
  int32_t base_of(int32_t b) const { return buffer(b).view ? buffer(b).base : b; }
  bool given(int32_t b) const {
    return buffer(b).home == BufferHome::kInput || buffer(b).home == BufferHome::kParameter;
  }
  Region region(const Use& use) const { return region_of(plan_.ops[use.op], use.operand, buffer(use.buffer)); }

  void collect_uses() {
    for (int32_t i = 0; i < static_cast<int32_t>(plan_.ops.size()); ++i) {
      const DeviceOp& op = plan_.ops[i];
      size_t operand = 0;
      for (const int32_t b : op.inputs) {
        if (b >= 0) reads_[base_of(b)].push_back({i, operand, b});
        ++operand;
      }
      for (const int32_t b : op.outputs) writes_[base_of(b)].push_back({i, operand++, b});
    }
  }

  // Whether operation |i| is where its operator's operands are read: the first of its stages.
  bool reads_memory(int32_t i) const {
    if (i == 0 || plan_.ops[i].graph_op < 0) return true;
    const DeviceOp& before = plan_.ops[i - 1];
    return before.graph_op != plan_.ops[i].graph_op || !before.outputs.empty();
  }
  int64_t reads_of_memory(int32_t b) const {
    return std::count_if(reads_[b].begin(), reads_[b].end(), [&](const Use& use) { return reads_memory(use.op); });
  }

  // The reason why |b| cannot live in the scratchpad; kNotPlanned where only room decides.
  LxVerdict judge(int32_t b) const {
    const std::vector<Use>&writes = writes_[b], &reads = reads_[b];
    if (buffer(b).view) return {.reason = LxReason::kView};
    if (buffer(b).home == BufferHome::kState || writes.size() > 1) return {.reason = LxReason::kMutated};
    for (const std::vector<Use>* uses : {&writes, &reads}) {
      for (const Use& use : *uses) {
        if (is_extern(plan_.ops[use.op].name)) return {.reason = LxReason::kExternUser, .op = use.op};
      }
    }
    for (const Use& use : reads) {
      if (looks_up(plan_.ops[use.op], use.operand)) return {.reason = LxReason::kGatherOperand, .op = use.op};
    }
    if (given(b) && reads_of_memory(b) < 2) return {.reason = LxReason::kReadOnce};
    if (reads.empty()) return {.reason = LxReason::kUnread};
    if (!writes.empty()) {
      const DeviceOp& writer = plan_.ops[writes[0].op];
      const bool partial = writer.reduced_dim >= 0 && writer.splits[writer.reduced_dim] > 1;
      if (partial) return {.reason = LxReason::kPartialSums, .op = writes[0].op};
    }
    for (const Use& use : reads) {
      if (plan_.ops[use.op].name == "restickify" && !options_.restickify_reads) {
        return {.reason = LxReason::kRestickifyInput, .op = use.op};
      }
    }
    return judge_views(b);
  }

  LxVerdict judge_views(int32_t b) const {
    const int64_t elements = buffer(b).spec.layout.device_elements();
    const Region own = region(owner(b));
    // Cores that have the same part twice hold no cut of the buffer.
    const auto cores = static_cast<int64_t>(own.starts.size());
    const bool cut = is_cut(own, elements);
    for (const Use& use : reads_[b]) {
      const Region wanted = region(use);
      if (wanted.even && wanted.core_elements * parts(wanted) < elements) {
        return {.reason = LxReason::kPartialRead, .op = use.op};
      }
      if (cut && (wanted == own || (options_.relayout && is_cut(wanted, elements)))) continue;
      return {.reason = LxReason::kViewsDiffer, .op = use.op};
    }
    LxVerdict verdict{.bytes_per_core = device::round_up(buffer(b).spec.card_bytes() / cores, device::kStickBytes)};
    if (verdict.bytes_per_core > options_.capacity) verdict.reason = LxReason::kTooLarge;
    return verdict;
  }
  const Use& owner(int32_t b) const { return writes_[b].empty() ? reads_[b].front() : writes_[b].front(); }
  // Together the cores have every element once.
  static bool is_cut(const Region& region, int64_t elements) {
    return region.even && region.core_elements * static_cast<int64_t>(region.starts.size()) == elements;
  }
  static int64_t parts(const Region& region) {
    std::vector<int64_t> starts = region.starts;
    std::sort(starts.begin(), starts.end());
    return std::unique(starts.begin(), starts.end()) - starts.begin();
  }

  int64_t bytes_of(const Use& use) const { return buffer(use.buffer).spec.card_bytes(); }

  // Device memory traffic that residency saves: every read, of a given buffer all but the first; and the write, unless
  // it is an output.
  int64_t worth(int32_t b) const {
    int64_t bytes = 0;
    bool first = given(b);
    for (const Use& use : reads_[b]) {
      if (!reads_memory(use.op)) continue;
      if (!std::exchange(first, false)) bytes += bytes_of(use);
    }
    if (buffer(b).home == BufferHome::kPool) bytes += buffer(b).spec.card_bytes();
    return bytes;
  }

  void place(const std::vector<int32_t>& candidates) {
    std::vector<int32_t> request_of(plan_.buffers.size(), -1);
    std::vector<LxRequest> requests;
    for (const int32_t b : candidates) {
      request_of[b] = static_cast<int32_t>(requests.size());
      LxRequest r{.bytes = buffer(b).lx.bytes_per_core, .worth = worth(b), .replaces = {}};
      r.first = writes_[b].empty() ? reads_[b].front().op : writes_[b].front().op;
      r.last = std::max(r.first, reads_[b].back().op);
      requests.push_back(std::move(r));
    }
    for (const int32_t b : candidates) {
      if (!writes_[b].empty()) add_replaced(writes_[b].front(), request_of, requests);
    }
    for (const int32_t b : candidates) add_copies(b, requests[request_of[b]]);
    for (const LxCopy& copy : plan_.lx_copies) {
      requests.push_back({.bytes = copy.bytes_per_core,
                          .first = copy.first,
                          .last = copy.last,
                          .worth = worth_of(copy),
                          .replaces = {}});
    }
    const std::vector<int64_t> addresses = place_lx(requests, options_.capacity, options_.solver);
    // A buffer that some reader would have to fetch from memory after all goes there.
    std::vector<bool> whole(plan_.buffers.size(), true);
    for (size_t i = 0; i < plan_.lx_copies.size(); ++i) {
      LxCopy& copy = plan_.lx_copies[i];
      copy.address = addresses[candidates.size() + i];
      if (copy.address < 0 || addresses[request_of[copy.buffer]] < 0) whole[copy.buffer] = false;
    }
    for (size_t i = 0; i < candidates.size(); ++i) {
      settle(candidates[i], whole[candidates[i]] ? addresses[i] : -1, requests[i]);
    }
    std::erase_if(plan_.lx_copies, [&](const LxCopy& copy) { return !whole[copy.buffer]; });
    for (const LxCopy& copy : plan_.lx_copies) {
      plan_.lx.peak_bytes = std::max(plan_.lx.peak_bytes, copy.address + copy.bytes_per_core);
      plan_.lx.saved_bytes += worth_of(copy);
    }
    plan_.lx.candidates = std::ssize(candidates);
  }

  // Readers of |b| whose cores want other parts: a copy for each cut. What they save counts for the copy.
  void add_copies(int32_t b, LxRequest& request) {
    const Region own = region(owner(b));
    std::vector<Region> cuts;
    const size_t first = plan_.lx_copies.size();
    for (const Use& use : reads_[b]) {
      Region wanted = region(use);
      if (wanted == own) continue;
      const auto found = std::find(cuts.begin(), cuts.end(), wanted);
      const size_t at = first + static_cast<size_t>(found - cuts.begin());
      if (found == cuts.end()) {
        const auto cores = static_cast<int64_t>(wanted.starts.size());
        const int64_t bytes = buffer(b).spec.card_bytes() / cores;
        // The finer of the two cuts governs.
        const bool finer = run_of(wanted) < run_of(own);
        const int64_t run =
            std::min(run_of(wanted), run_of(own)) * device::kStickBytes / buffer(b).placement.stick_elements;
        plan_.lx_copies.push_back(
            {.buffer = b,
             .first = use.op,
             .last = use.op,
             .bytes_per_core = device::round_up(bytes, device::kStickBytes),
             .move = {std::max<int64_t>(bytes / run, 1), innermost_split(finer ? use : owner(b)), bytes}});
        cuts.push_back(std::move(wanted));
      }
      LxCopy& copy = plan_.lx_copies[at];
      copy.last = use.op;
      copy.readers.emplace_back(use.op, use.operand);
    }
    for (size_t i = first; i < plan_.lx_copies.size(); ++i) request.worth -= worth_of(plan_.lx_copies[i]);
  }
  int64_t worth_of(const LxCopy& copy) const {
    int64_t bytes = 0;
    for (const auto& [op, operand] : copy.readers) {
      if (reads_memory(op)) bytes += bytes_of({op, operand, plan_.ops[op].inputs[operand]});
    }
    return bytes;
  }
  static int64_t run_of(const Region& region) { return region.runs.front().second; }
  // Of the dimensions that are cut, the one that lies innermost in memory.
  int64_t innermost_split(const Use& use) const {
    const DeviceOp& op = plan_.ops[use.op];
    const std::vector<int64_t>& strides = buffer(use.buffer).placement.strides;
    int64_t split = 1, least = 0;
    for (size_t d = 0; d < strides.size(); ++d) {
      const int walk = op.walks[use.operand][d];
      if (walk < 0 || op.splits[walk] == 1 || (split > 1 && strides[d] > least)) continue;
      split = op.splits[walk];
      least = strides[d];
    }
    return split;
  }

  // An operation that works element by element may write where it reads for the last time.
  void add_replaced(const Use& write, const std::vector<int32_t>& request_of, std::vector<LxRequest>& requests) {
    const DeviceOp& op = plan_.ops[write.op];
    if (op.reduced_dim >= 0) return;
    const std::vector<int>& walks = op.walks[write.operand];
    if (std::find(walks.begin(), walks.end(), -1) != walks.end()) return;
    const Region written = region(write);
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const int32_t b = op.inputs[i] < 0 ? -1 : base_of(op.inputs[i]);
      if (b < 0 || request_of[b] < 0 || requests[request_of[b]].last != write.op || op.walks[i] != walks) continue;
      // A copy that a relayout makes is not where the buffer is.
      const Region read = region({write.op, i, op.inputs[i]});
      if (read == written && read == region(owner(b))) {
        requests[request_of[base_of(write.buffer)]].replaces.push_back(request_of[b]);
      }
    }
  }

  void settle(int32_t b, int64_t address, const LxRequest& request) {
    LxVerdict& verdict = plan_.buffers[b].lx;
    verdict.address = address;
    if (address < 0) {
      verdict.reason = LxReason::kNoRoom;
      return;
    }
    verdict.reason = given(b)                                ? LxReason::kClonedIn
                     : buffer(b).home == BufferHome::kOutput ? LxReason::kClonedOut
                                                             : LxReason::kResident;
    ++plan_.lx.resident;
    plan_.lx.peak_bytes = std::max(plan_.lx.peak_bytes, address + request.bytes);
    plan_.lx.saved_bytes += request.worth;
  }

  void account(int32_t i) {
    DeviceOp& op = plan_.ops[i];
    for (size_t k = 0; reads_memory(i) && k < op.inputs.size(); ++k) {
      const int32_t b = op.inputs[k] < 0 ? -1 : base_of(op.inputs[k]);
      if (b < 0 || !buffer(b).lx.resident()) continue;
      const Use use{i, k, op.inputs[k]};
      const bool pays =
          buffer(b).lx.reason == LxReason::kClonedIn && reads_[b].front().op == i && reads_[b].front().operand == k;
      op.lx_bytes += bytes_of(use);
      if (!pays) op.read_bytes -= bytes_of(use);
    }
    for (const int32_t written : op.outputs) {
      const int32_t b = base_of(written);
      if (!buffer(b).lx.resident()) continue;
      op.lx_bytes += buffer(written).spec.card_bytes();
      if (buffer(b).lx.reason == LxReason::kResident) op.write_bytes -= buffer(written).spec.card_bytes();
    }
  }

  CardPlan& plan_;
  const LxOptions& options_;
  std::vector<std::vector<Use>> writes_, reads_;  // per buffer, of it and its views; in order of operations
};

}  // namespace

void plan_lx(CardPlan& plan, const LxOptions& options) {
  LxPlanner(plan, options).run();
}

}  // namespace spyre::compiler
